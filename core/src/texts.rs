//! Every fixed text that a model can see, in one place.

/// Answers a call that no `tool/call` recorded as started when the process ended (REP-07).
pub const TOOL_NOT_STARTED: &str = "This tool call never ran: the process ended before the call was recorded as \
    started. It had no effect. Make the call again if you still need its result.";

/// Answers a call that had started when the process ended (REP-07).
pub const TOOL_OUTCOME_UNKNOWN: &str = "The process ended while this tool call was running, so it is not known whether \
    it took effect. Repeat it only if it merely reads or is safe to run twice. Otherwise find out first what it did, or \
    ask the user.";

/// Answers a call that was cancelled before its body ran (EXE-04, TOOL-16).
pub const TOOL_ABORTED_BEFORE_DISPATCH: &str = "Error: the turn was cancelled before this tool call started; it had \
    no effect.";

/// Answers a call whose body was overtaken by a cancellation (EXE-15).
pub const TOOL_ABORTED: &str = "Error: the turn was cancelled while this tool call ran; it may have taken effect.";

/// Answers a call that a failure of the scheduler left without a result (D-11).
pub const TOOL_SCHEDULER_FAILED: &str = "Error: this tool call could not be carried out because of an internal \
    failure; it may have taken effect.";

/// Stands, in a request only, for a result that the log does not have (P2).
pub const TOOL_RESULT_MISSING: &str = "No result of this tool call is recorded, so it is not known whether it ran.";

/// Starts the answer to a call of a tool that does not exist; the quoted name follows (EXE-08).
pub const UNKNOWN_TOOL: &str = "Error: there is no tool named";

/// Starts the answer to a call with bad arguments; the violations follow (EXE-09).
pub const INVALID_ARGS: &str = "Error: invalid arguments:";

/// Behind the name of a tool that exists and may be called from a program only (DEF-09).
pub const CODE_ONLY_HINT: &str = "to call directly; it is available inside programs: call it from the program that you \
    give to run_code.";

/// How tools are used from a program (SYS-12).
pub const CODE_GUIDANCE: &str = "Use tools by writing a program for run_code. Inside a program every tool listed below \
    is a function of its name that takes one object of arguments. One program may call several tools and compute with \
    what they return; only what the program returns comes back to you.";

/// Opens the list of the tools that a program may call; one tool a line follows (SYS-12).
pub const CODE_TOOLS: &str = "Tools for programs, one JSON object a line:";

/// Opens a context snapshot; the contexts follow (SNAP-01).
pub const CONTEXT_SNAPSHOT: &str = "Current context. It replaces every earlier context message.";

/// Says that no context is in force any more (SNAP-04).
pub const CONTEXT_CLEARED: &str = "There is no current context any more; disregard earlier context messages.";

/// The identity sentence, when it is switched on (D-24).
pub const HARNESS_IDENTITY: &str = "You are an assistant that acts through the turnwheel agent runtime.";

/// Denies a call that policy wants asked for where nobody can be asked (EXE-06).
pub const APPROVAL_NOBODY: &str = "nobody is there to approve this call";

/// Denies a call that somebody refused (EXE-06).
pub const APPROVAL_REJECTED: &str = "this call was not approved";

/// Denies a call whose question was withdrawn (EXE-06).
pub const APPROVAL_CANCELLED: &str = "the approval of this call was cancelled";

/// Denies a call whose question nobody could answer (EXE-06).
pub const APPROVAL_UNAVAILABLE: &str = "the approval of this call could not be asked for";

/// Answers a result that policy blocked without a word of feedback (EXE-19).
pub const RESULT_BLOCKED: &str = "Error: the result of this tool call was withheld";
