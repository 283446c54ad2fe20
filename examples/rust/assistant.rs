//! An assistant with two tools, on any OpenAI-compatible server, or offline on a script:
//!
//!     cargo run --example assistant
//!     TURNWHEEL_BASE_URL=http://127.0.0.1:8080/v1 TURNWHEEL_MODEL=smollm2 cargo run --example assistant

use std::env::var;
use std::io::Write;
use turnwheel::llm::Chunk;
use turnwheel::llm::adapters::{OpenAiChat, Scripted};
use turnwheel::storage::jsonl::{JsonlOptions, JsonlStore};
use turnwheel::{Context, EventData, Result, Tool, ToolOutput, json};

fn offline() -> Scripted {
    Scripted::new()
        .calls([("c1", "add", r#"{"a":2,"b":3}"#), ("c2", "multiply", r#"{"a":5,"b":4}"#)])
        .text("2 + 3 is 5, and five times four is 20.")
        .text("4 + 5 is 9.")
}

fn arithmetic(name: &str, description: &str, apply: fn(i64, i64) -> i64) -> Tool {
    let integer = json!({"type": "integer"});
    let schema = json!({"type": "object", "properties": {"a": integer, "b": integer}, "required": ["a", "b"]});
    Tool::new(name, move |call| async move {
        let (a, b) = (call.integer("a")?, call.integer("b")?);
        Ok(ToolOutput::value(apply(a, b)))
    })
    .description(description)
    .parameters(schema)
    .parallel()
}

async fn run(ctx: Context) -> Result<()> {
    match var("TURNWHEEL_BASE_URL") {
        Ok(url) => {
            let adapter = OpenAiChat::builder(url).api_key(var("TURNWHEEL_API_KEY").unwrap_or("none".into()));
            ctx.llm().register("local", adapter.build()?)?
        }
        Err(_) => ctx.llm().register("local", offline())?,
    };
    ctx.tools().register(arithmetic("add", "Add two integers.", |a, b| a + b))?;
    ctx.tools().register(arithmetic("multiply", "Multiply two integers.", |a, b| a * b))?;

    let model = var("TURNWHEEL_MODEL").unwrap_or_else(|_| "scripted".into());
    let agent = ctx.agent("demo-rust").provider("local").model(model).open().await?;
    let mut events = agent.stream("What is 2 + 3, and five times four?")?;
    while let Some(event) = events.next().await {
        if let EventData::AssistantChunk { chunk: Chunk::TextDelta { text, .. }, .. } = &event?.data {
            print!("{text}");
            std::io::stdout().flush().ok();
        }
    }
    println!("\n{}", agent.run("And 4 + 5?")?.await?.text);
    ctx.close().await
}

fn main() -> Result<()> {
    let ctx = Context::builder().store(JsonlStore::new(JsonlOptions::new("sessions"))).build();
    ctx.runtime().clone().block_on(run(ctx))
}
