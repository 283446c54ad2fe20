//! One error for the whole runtime: a stable code, a message that says what to do, context as data, and a cause.
//!
//! Codes are the contract between languages: their names never change, and each has a number for C in blocks of a
//! hundred by subject. Errors that host code raised keep the host's own object, so that a Python exception or a C
//! user's value comes out of the runtime as it went in.

use crate::json::{Object, Value};
use crate::llm::Failure;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The result of most operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! codes {
    ($($number:literal $name:ident $variant:ident $doc:literal;)*) => {
        /// A stable error code. The number's hundred names the subject: 100 usage, 200 state, 300 log, 400 registry
        /// and scope, 500 host code, 600 model, 700 tool, 800 store, 900 bug.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $doc] $variant,)*
            /// A code that host code, a tool or a model provider brought along.
            Other(Arc<str>),
        }

        impl Code {
            /// Every code of the runtime's own, with its number.
            pub const ALL: &'static [(&'static str, i32)] = &[$((stringify!($name), $number),)*];

            /// The stable name.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Code::$variant => stringify!($name),)*
                    Code::Other(name) => name,
                }
            }

            /// The code of a stable name; a name that is none of the runtime's is a foreign code.
            pub fn parse(name: &str) -> Self {
                match name {
                    $(stringify!($name) => Code::$variant,)*
                    other => Code::Other(other.into()),
                }
            }

            /// The number for C; a foreign code counts as host code (599).
            pub fn number(&self) -> i32 {
                match self {
                    $(Code::$variant => $number,)*
                    Code::Other(_) => 599,
                }
            }
        }
    };
}

codes! {
    101 INVALID_ARGUMENT InvalidArgument "A value that the operation cannot take.";
    102 UNKNOWN_OPTION UnknownOption "An option name that does not exist.";
    103 INVALID_JSON InvalidJson "Text that is not JSON, or a value that JSON cannot carry exactly.";
    104 INVALID_MESSAGE InvalidMessage "A message that breaks the message model (APP-14).";
    105 UNSUPPORTED_SCHEMA UnsupportedSchema "A JSON Schema outside the supported subset (VAL-01).";
    106 INVALID_PROMPT InvalidPrompt "A prompt section, variable or tool order that cannot be used.";
    201 DISPOSED Disposed "The agent is disposed or being disposed.";
    202 NOT_PUBLISHED NotPublished "The agent cannot be driven before it is published.";
    203 BUSY Busy "The agent is not idle.";
    204 SELF_WAIT SelfWait "Waiting for oneself would never end.";
    205 REENTRANT Reentrant "Not allowed from inside a log observer of the same session.";
    206 NEXT_CALLED_TWICE NextCalledTwice "A listener called its continuation a second time.";
    207 INACTIVE_EFFECT InactiveEffect "Registering through a context that is being or was disposed.";
    208 ABORTED Aborted "Cancelled.";
    209 NO_INITIATOR NoInitiator "There is no initiating agent here.";
    210 MESSAGE_DISCARDED MessageDiscarded "The message was removed before any turn took it.";
    211 RUNTIME_CLOSED RuntimeClosed "The runtime or context is closed.";
    212 PARKED Parked "The message waits, and nothing is going to read it before the next wake.";
    301 RESERVED_EVENT ReservedEvent "A core event type cannot be appended directly.";
    302 INVALID_EVENT InvalidEvent "An event that breaks the log's rules.";
    303 INVALID_SURFACE InvalidSurface "Surface placement or cited sources that break the surface's rules.";
    304 CORRUPT_LOG CorruptLog "A stored log that is damaged.";
    305 UNSUPPORTED_FORMAT UnsupportedFormat "A stored log of a format or with event types this version does not know.";
    306 INVALID_HEADER InvalidHeader "A session header with a bad field.";
    307 UNBALANCED_SEED UnbalancedSeed "A creation seed that ends inside a turn.";
    308 INVARIANT Invariant "An invariant check refused the event.";
    309 OPEN_TURN OpenTurn "The boundary lies inside a turn.";
    310 INVALID_BOUNDARY InvalidBoundary "The boundary names no event of the log.";
    401 DUPLICATE_MESSAGE DuplicateMessage "A message id that this session has already accepted.";
    402 DUPLICATE_NAME DuplicateName "A name that is taken in this layer.";
    403 SESSION_ALREADY_EXISTS SessionAlreadyExists "A session or agent of this id is live or stored.";
    404 SESSION_NOT_FOUND SessionNotFound "No session of this id.";
    405 SESSION_NOT_LIVE SessionNotLive "The session object is not the live one of its id.";
    406 NO_FACTORY NoFactory "No agent factory is registered.";
    407 IDENTITY_MISMATCH IdentityMismatch "The agent's id differs from its session's.";
    408 SCOPE_CONFLICT ScopeConflict "A scope binding that exists already or would form a cycle.";
    409 NOT_REGISTERED NotRegistered "The thing named is not registered.";
    501 HOST_ERROR HostError "Host code (a listener, tool, adapter or store) raised an error.";
    502 WRONG_THREAD WrongThread "Called from a thread that does not own the runtime.";
    503 FORKED Forked "The handle was made before this process forked.";
    504 INVALID_HANDLE InvalidHandle "A handle that was released, is of another type or was never one.";
    601 NO_ADAPTER NoAdapter "No adapter serves this provider.";
    602 DUPLICATE_ADAPTER DuplicateAdapter "The provider route is taken.";
    603 NO_ROUTE NoRoute "The request names no provider or no model.";
    604 INVALID_PREPARED_CALL InvalidPreparedCall "A prepared call used twice or with another config.";
    605 MODEL_FAILED ModelFailed "The model call failed; the failure has the facts.";
    606 UNSUPPORTED_REASONING_EFFORT UnsupportedReasoningEffort "The model does not offer this effort.";
    607 MALFORMED_CHUNK MalformedChunk "A stream chunk that cannot be assembled.";
    701 TOOL_SCHEDULER_FAILED ToolSchedulerFailed "The tool scheduler failed before the call could answer.";
    702 UNKNOWN_TOOL UnknownTool "No tool of this name is available.";
    703 INVALID_ARGS InvalidArgs "Tool arguments that violate the tool's schema.";
    704 INVALID_TOOL_OUTPUT InvalidToolOutput "A tool value that violates its output schema or is not JSON.";
    705 TOOL_TIMEOUT ToolTimeout "The tool call ran out of its time.";
    706 ABORTED_BEFORE_DISPATCH AbortedBeforeDispatch "The tool call was cancelled before it started.";
    707 TOOL_NOT_STARTED ToolNotStarted "The tool call had not started when the process ended.";
    708 TOOL_OUTCOME_UNKNOWN ToolOutcomeUnknown "The tool call had started when the process ended.";
    709 TOOL_RESULT_TOO_LARGE ToolResultTooLarge "The tool's result is larger than a record of the log may be.";
    801 STORE_FAILED StoreFailed "The store could not read or write.";
    802 STORE_CONFLICT StoreConflict "The stored log does not end where the writer expected.";
    803 SESSION_LOCKED SessionLocked "Another process holds the session.";
    804 NO_STORE NoStore "The context has no store.";
    901 UNKNOWN Unknown "A failure without a code of its own.";
    902 PANIC Panic "The runtime panicked; this is a bug.";
}

/// A failure with a stable code. Cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    name: Option<String>,
    message: String,
    context: Object,
    source: Option<Error>,
    failure: Option<Failure>,
    host: Option<Arc<dyn Any + Send + Sync>>,
}

impl Error {
    /// An error with a code and a message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            code,
            name: None,
            message: message.into(),
            context: Object::new(),
            source: None,
            failure: None,
            host: None,
        }))
    }

    /// A plain error of host code: a message and no code of its own.
    pub fn host(message: impl Into<String>) -> Self {
        Self::new(Code::HostError, message)
    }

    /// A coded error of host code, for example of a tool: `name` and `code` reach the log (EXE-21).
    pub fn coded(name: impl Into<String>, code: impl Into<Arc<str>>, message: impl Into<String>) -> Self {
        let mut error = Self::new(Code::Other(code.into()), message);
        error.inner().name = Some(name.into());
        error
    }

    /// A model failure: what the adapter or provider reported (FAIL-01).
    pub fn model(failure: Failure) -> Self {
        let mut error = Self::new(Code::ModelFailed, failure.message.clone());
        error.inner().failure = Some(failure);
        error
    }

    fn inner(&mut self) -> &mut Inner {
        Arc::make_mut(&mut self.0)
    }

    /// Adds a fact as data, for example the id that was refused.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.inner().context.insert(key, value);
        self
    }

    /// Sets the code, where a caller knows better what a failure means.
    pub fn with_code(mut self, code: Code) -> Self {
        self.inner().code = code;
        self
    }

    /// Sets the cause.
    pub fn caused_by(mut self, source: Error) -> Self {
        self.inner().source = Some(source);
        self
    }

    /// Sets the error's class name, as the log records it for tools.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.inner().name = Some(name.into());
        self
    }

    /// Attaches the host's own error object, to be raised again unchanged.
    pub fn with_host(mut self, host: Arc<dyn Any + Send + Sync>) -> Self {
        self.inner().host = Some(host);
        self
    }

    /// The stable code.
    pub fn code(&self) -> &Code {
        &self.0.code
    }

    /// The class name of a coded host error.
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// The message, without the causes.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Facts about the error as data.
    pub fn context(&self) -> &Object {
        &self.0.context
    }

    /// The cause.
    pub fn cause(&self) -> Option<&Error> {
        self.0.source.as_ref()
    }

    /// The facts of a model failure.
    pub fn failure(&self) -> Option<&Failure> {
        self.0.failure.as_ref()
    }

    /// The host's own error object.
    pub fn host_object(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.0.host.as_ref()
    }

    /// Advice on repeating the very same call: nothing where that cannot help, else how long to wait first. Zero means as
    /// soon as what stands in the way is gone: the agent is idle, the other process has let go, the network is back.
    pub fn retry(&self) -> Option<Duration> {
        if let Some(failure) = self.failure() {
            return failure.retry();
        }
        match &self.0.code {
            Code::NotPublished | Code::Busy | Code::Reentrant => Some(Duration::ZERO),
            Code::ToolTimeout | Code::StoreFailed | Code::SessionLocked => Some(Duration::ZERO),
            Code::InvalidArgument | Code::UnknownOption | Code::InvalidJson | Code::InvalidMessage => None,
            Code::UnsupportedSchema | Code::InvalidPrompt => None,
            Code::Disposed | Code::SelfWait | Code::NextCalledTwice | Code::InactiveEffect | Code::Aborted => None,
            Code::NoInitiator | Code::MessageDiscarded | Code::RuntimeClosed => None,
            // The prompt was withdrawn, and its id is spent (D-08).
            Code::Parked => None,
            Code::ReservedEvent | Code::InvalidEvent | Code::InvalidSurface | Code::CorruptLog => None,
            Code::UnsupportedFormat | Code::InvalidHeader | Code::UnbalancedSeed | Code::Invariant => None,
            Code::OpenTurn | Code::InvalidBoundary => None,
            Code::DuplicateMessage | Code::DuplicateName | Code::SessionAlreadyExists | Code::SessionNotFound => None,
            Code::SessionNotLive | Code::NoFactory | Code::IdentityMismatch | Code::ScopeConflict => None,
            Code::NotRegistered | Code::HostError | Code::WrongThread | Code::Forked | Code::InvalidHandle => None,
            Code::NoAdapter | Code::DuplicateAdapter | Code::NoRoute | Code::InvalidPreparedCall => None,
            Code::ModelFailed | Code::UnsupportedReasoningEffort | Code::MalformedChunk => None,
            // What the call did is not known or not to be repeated blindly.
            Code::ToolSchedulerFailed | Code::ToolNotStarted | Code::ToolOutcomeUnknown | Code::ToolResultTooLarge => {
                None
            }
            Code::UnknownTool | Code::InvalidArgs | Code::InvalidToolOutput | Code::AbortedBeforeDispatch => None,
            // Somebody else wrote: open the session again first.
            Code::StoreConflict | Code::NoStore | Code::Unknown | Code::Panic | Code::Other(_) => None,
        }
    }

    /// Whether this is a cancellation.
    pub fn is_aborted(&self) -> bool {
        self.0.code == Code::Aborted
    }

    /// The message with all causes, joined by `: `; a cause that repeats its wrapper is left out (FAIL-08).
    pub fn chain(&self) -> String {
        let mut text = self.message().to_owned();
        let mut last = self;
        while let Some(cause) = last.cause() {
            if cause.message() != last.message() {
                text.push_str(": ");
                text.push_str(cause.message());
            }
            last = cause;
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.0.code.as_str(), self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.0.code.as_str(), self.chain())?;
        if !self.0.context.is_empty() {
            write!(f, " {:?}", self.0.context)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}

impl From<crate::json::ParseError> for Error {
    fn from(error: crate::json::ParseError) -> Self {
        Error::new(Code::InvalidJson, error.to_string())
    }
}
