//! The definition of a tool.

use super::call::{ToolCall, ToolOutput};
use super::events::{ToolCallInfo, ToolOutcome};
use super::schema::check_schema;
use crate::error::{Code, Error, Result};
use crate::json::{Object, Value};
use crate::llm::ToolSchema;
use crate::message::Block;
use crate::runtime::LocalBoxFuture;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub(super) type Body = dyn Fn(ToolCall) -> LocalBoxFuture<Result<ToolOutput>>;
type Classifier = dyn Fn(&Value) -> bool;

/// Replaces what the model sees of a result, last of all; nothing keeps it (EXE-22).
pub type Finalizer = dyn Fn(&ToolCallInfo, &ToolOutcome) -> Result<Option<Vec<Block>>>;

/// What a user interface shows of a call's arguments.
pub type CallView = dyn Fn(&Value) -> Result<Value>;

/// What a user interface shows of an answer, from the arguments and the answer.
pub type ResultView = dyn Fn(&Value, &ToolOutcome) -> Result<Value>;

/// What a program needs to know of a tool: what the model sees, and what comes back (DEF-10).
#[derive(Clone, Debug, PartialEq)]
pub struct CodeSchema {
    /// Name, description and parameters.
    pub schema: Arc<ToolSchema>,
    /// The schema of the returned value, if the tool declares one.
    pub output: Option<Value>,
}

/// A tool. Without [`Tool::parallel`] its calls run alone (TOOL-4).
#[derive(Clone)]
pub struct Tool {
    pub(super) schema: Arc<ToolSchema>,
    pub(super) body: Rc<Body>,
    pub(super) is_parallel: Option<Rc<Classifier>>,
    pub(super) checks_arguments: bool,
    pub(super) output: Option<Rc<Value>>,
    pub(super) timeout: Option<Duration>,
    pub(super) finalizer: Option<Rc<Finalizer>>,
    pub(super) call_view: Option<Rc<CallView>>,
    pub(super) result_view: Option<Rc<ResultView>>,
}

impl Tool {
    /// A tool without arguments; see [`Tool::parameters`].
    pub fn new<F>(name: impl Into<String>, body: impl Fn(ToolCall) -> F + 'static) -> Self
    where
        F: Future<Output = Result<ToolOutput>> + 'static,
    {
        let mut parameters = Object::new();
        parameters.insert("type", "object");
        parameters.insert("properties", Object::new());
        Self {
            schema: Arc::new(ToolSchema::new(name, "", parameters.into())),
            body: Rc::new(move |call| Box::pin(body(call))),
            is_parallel: None,
            checks_arguments: true,
            output: None,
            timeout: None,
            finalizer: None,
            call_view: None,
            result_view: None,
        }
    }

    /// What the tool does, for the model.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.schema = Arc::new(ToolSchema::new(self.schema.name(), text, self.schema.parameters().clone()));
        self
    }

    /// The JSON Schema of the arguments, in the subset of VAL-01. Calls that violate it never reach the body (EXE-09).
    pub fn parameters(mut self, schema: impl Into<Value>) -> Self {
        self.schema = Arc::new(ToolSchema::new(self.schema.name(), self.schema.description(), schema.into()));
        self
    }

    /// Lets calls overlap their siblings (TOOL-5).
    pub fn parallel(self) -> Self {
        self.parallel_when(|_| true)
    }

    /// Lets the calls overlap for whose arguments `classify` says so; it runs again right before each start (TOOL-7).
    pub fn parallel_when(mut self, classify: impl Fn(&Value) -> bool + 'static) -> Self {
        self.is_parallel = Some(Rc::new(classify));
        self
    }

    /// Hands arguments to the body as they come, for tools that check by themselves or whose schema is of another
    /// dialect.
    pub fn unchecked(mut self) -> Self {
        self.checks_arguments = false;
        self
    }

    /// The JSON Schema of the returned value; a violation is `INVALID_TOOL_OUTPUT` (EXE-12).
    pub fn output(mut self, schema: impl Into<Value>) -> Self {
        self.output = Some(Rc::new(schema.into()));
        self
    }

    /// How long a call may take. Cooperative: the body's signal fires, and the body is awaited (EXE-25).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Lets `finalize` replace what the model sees of each result, failures too, after everybody else had a say. It
    /// cannot turn a failure into a success; if it fails, the call becomes that error (EXE-22).
    pub fn finalize_content(
        mut self,
        finalize: impl Fn(&ToolCallInfo, &ToolOutcome) -> Result<Option<Vec<Block>>> + 'static,
    ) -> Self {
        self.finalizer = Some(Rc::new(finalize));
        self
    }

    /// Says what a user interface shows of a call, from its arguments: any JSON that the two agree on (DEF-01). Neither
    /// the model nor the log sees it; it is asked for by [`Tools::present_call`](super::Tools::present_call).
    pub fn present_call(mut self, view: impl Fn(&Value) -> Result<Value> + 'static) -> Self {
        self.call_view = Some(Rc::new(view));
        self
    }

    /// As [`Tool::present_call`], for the answer; see [`Tools::present_result`](super::Tools::present_result).
    pub fn present_result(mut self, view: impl Fn(&Value, &ToolOutcome) -> Result<Value> + 'static) -> Self {
        self.result_view = Some(Rc::new(view));
        self
    }

    /// As [`Tool::parameters`], in the shorthand of [`super::schema_of_shorthand`] (VAL-08).
    pub fn parameters_shorthand(self, shorthand: impl Into<Value>) -> Result<Self> {
        Ok(self.parameters(super::schema_of_shorthand(&shorthand.into())?))
    }

    /// The tool's name.
    pub fn name(&self) -> &str {
        self.schema.name()
    }

    /// What the model sees.
    pub fn schema(&self) -> &Arc<ToolSchema> {
        &self.schema
    }

    pub(super) fn code_schema(&self) -> CodeSchema {
        CodeSchema { schema: self.schema.clone(), output: self.output.as_deref().cloned() }
    }

    /// Fails for a name or schema that cannot be used (DEF-02).
    pub(super) fn check(&self) -> Result<()> {
        if self.name().is_empty() {
            return Err(Error::new(Code::InvalidArgument, "a tool needs a name"));
        }
        if self.timeout == Some(Duration::ZERO) {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("tool {:?}: the timeout must be positive", self.name()),
            ));
        }
        let named = |which: &str, error: Error| {
            let message = format!("tool {:?}, {which}: {}", self.name(), error.message());
            Error::new(error.code().clone(), message).with("tool", self.name())
        };
        if self.checks_arguments {
            check_schema(self.schema.parameters()).map_err(|error| named("parameters", error))?;
        }
        match &self.output {
            Some(output) => check_schema(output).map_err(|error| named("output", error)),
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tool({})", self.name())
    }
}
