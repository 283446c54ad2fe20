//! Tools: what a model may call (DEF, EXE).

mod call;
mod definition;
mod events;
mod pipeline;
mod registry;
mod schema;

pub use call::{ToolCall, ToolOutput};
pub use definition::Tool;
pub use events::{
    ExecuteRequest, PostDecision, PostExecute, PreDecision, PreExecute, ToolCallInfo, ToolOutcome, ToolResultNotice,
};
pub(crate) use pipeline::{Admitted, Answer, Execution, Pool};
pub use registry::{Guard, ToolTable, Tools};
pub use schema::{check_schema, violations};
