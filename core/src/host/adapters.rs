//! The adapters that come with the runtime, from JSON options.

use super::options::Options;
use crate::error::{Code, Error, Result};
use crate::json::Value;
use crate::llm::adapters::{Scripted, ScriptedCall, ScriptedReply};
use crate::llm::{Adapter, Failure, FinishReason, ModelInfo};
use crate::message::Usage;
use std::rc::Rc;

/// An adapter from `{"kind", …}`: one of [`HTTP_ADAPTERS`](super::HTTP_ADAPTERS) with the options of
/// [`http_adapter`](super::http_adapter), `scripted` with those of [`scripted`], or a double: those of
/// [`model_double`](super::model_double), around the adapter that `inner` describes.
pub fn adapter(options: Options<'_>) -> Result<Rc<dyn Adapter>> {
    let kind = options.required_text("kind")?;
    match kind.as_str() {
        "scripted" => return Ok(Rc::new(scripted(options)?)),
        "faulty" | "record" | "replay" => {
            let inner = match options.value("inner") {
                Some(value) => Some(adapter(options.nested(value, "the inner adapter")?)?),
                None => None,
            };
            return super::model_double(options, inner);
        }
        #[cfg(feature = "http")]
        kind if super::HTTP_ADAPTERS.contains(&kind) => {
            if let Some(adapter) = super::http_adapter(kind, options, None)? {
                return Ok(adapter);
            }
        }
        _ => {}
    }
    #[cfg(feature = "http")]
    let known = format!("{}, scripted, faulty, record, replay", super::HTTP_ADAPTERS.join(", "));
    #[cfg(not(feature = "http"))]
    let known = "scripted, faulty, record, replay";
    let message = format!("there is no adapter of kind {kind:?}; there are: {known}");
    Err(Error::new(Code::InvalidArgument, message))
}

/// What is known of a model: `{"contextWindow"?, "defaultMaxTokens"?, "efforts"?, "defaultEffort"?, "inputModalities"?}`.
pub fn model_info(options: Options<'_>) -> Result<ModelInfo> {
    let info = ModelInfo {
        context_window: options.count("contextWindow")?,
        default_max_tokens: options.count("defaultMaxTokens")?,
        efforts: options.texts("efforts")?.unwrap_or_default(),
        default_effort: options.text("defaultEffort")?,
        input_modalities: options.texts("inputModalities")?,
    };
    options.finish()?;
    Ok(info)
}

/// A script from `{"replies"?, "otherwise"?}`: replies in order, and what answers when none is left.
pub fn scripted(options: Options<'_>) -> Result<Scripted> {
    options.value("kind");
    let mut script = Scripted::new();
    let replies = options.read("replies", "a list of replies", |value| value.as_array().map(<[Value]>::to_vec))?;
    for reply in replies.unwrap_or_default() {
        script = script.reply(scripted_reply(options.nested(&reply, "a scripted reply")?)?);
    }
    if let Some(reply) = options.value("otherwise") {
        let reply = scripted_reply(options.nested(reply, "a scripted reply")?)?;
        script = script.respond(move |_| reply.clone());
    }
    options.finish()?;
    Ok(script)
}

/// One answer: `{"reasoning"?, "text"?, "calls"?, "usage"?, "finish"?, "error"?, "chunkSize"?, "delayMs"?,
/// "replayState"?}`. A call is `{"id", "name", "arguments"?}`, its arguments a text or any JSON; an error is failure facts.
pub fn scripted_reply(options: Options<'_>) -> Result<ScriptedReply> {
    let calls = options.read("calls", "a list of {\"id\", \"name\", \"arguments\"?}", |value| {
        value.as_array()?.iter().map(scripted_call).collect::<Option<Vec<_>>>()
    })?;
    let finish = options.text("finish")?.map(|kind| match kind.as_str() {
        "stop" => Ok(FinishReason::Stop),
        "tool-calls" => Ok(FinishReason::ToolCalls),
        "max-tokens" => Ok(FinishReason::MaxTokens),
        other => {
            let message = format!("a reply finishes with stop, tool-calls or max-tokens, not {other:?}");
            Err(Error::new(Code::InvalidArgument, message))
        }
    });
    let reply = ScriptedReply {
        reasoning: options.text("reasoning")?,
        text: options.text("text")?,
        calls: calls.unwrap_or_default(),
        usage: options.read(
            "usage",
            "token usage, for example {\"inputTokens\": 1, \"outputTokens\": 1}",
            Usage::from_value,
        )?,
        finish: finish.transpose()?,
        error: options.read("error", "failure facts: {\"code\", \"message\", …}", Failure::from_value)?,
        chunk_size: options.count("chunkSize")?.and_then(|size| usize::try_from(size).ok()),
        delay_between_chunks: options.duration("delay")?,
        replay_state: options.value("replayState").cloned(),
    };
    options.finish()?;
    Ok(reply)
}

fn scripted_call(value: &Value) -> Option<ScriptedCall> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let arguments = match value.get("arguments") {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_text(),
        None => "{}".to_owned(),
    };
    Some(ScriptedCall { id: text("id")?, name: text("name")?, arguments })
}
