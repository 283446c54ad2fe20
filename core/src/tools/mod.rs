//! Tools: what a model may call (DEF, EXE).

mod approval;
mod call;
mod definition;
mod events;
mod nested;
mod pipeline;
mod presentation;
mod registry;
mod schema;
mod shorthand;

pub use crate::agent_loop::answer_tool_calls;
pub use approval::{ApprovalOutcome, ApprovalRequest, Approver};
pub use call::{ToolCall, ToolOutput};
pub use definition::{CodeSchema, Finalizer, Tool};
pub use events::{
    ExecuteRequest, PostDecision, PostExecute, PreDecision, PreExecute, ToolCallInfo, ToolOutcome, ToolResultNotice,
};
pub(crate) use pipeline::{Admitted, Answer, Execution, Pool};
pub(crate) use presentation::guidance;
pub use presentation::{CODE_GUIDANCE_SECTION, CODE_TOOLS_SECTION, Presentation, RUN_CODE};
pub use registry::{Guard, ToolTable, Tools};
pub use schema::{check_schema, violations};
pub use shorthand::schema_of_shorthand;
