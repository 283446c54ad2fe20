//! The adapters that come with the runtime, from JSON options.

use super::options::Options;
use crate::error::{Code, Error, Result};
use crate::json::Value;
use crate::llm::adapters::{Scripted, ScriptedCall, ScriptedReply};
use crate::llm::{Adapter, Failure, FinishReason, ModelInfo};
use crate::message::Usage;
use std::rc::Rc;

/// An adapter from `{"kind", …}`: `openai-chat` with the options of [`openai_chat`], or `scripted` with those of
/// [`scripted`].
pub fn adapter(options: Options<'_>) -> Result<Rc<dyn Adapter>> {
    match options.required_text("kind")?.as_str() {
        #[cfg(feature = "http")]
        "openai-chat" => Ok(Rc::new(openai_chat(options)?)),
        "scripted" => Ok(Rc::new(scripted(options)?)),
        other => Err(options.bad(&format!("there is no adapter of kind {other:?}; there are: openai-chat, scripted"))),
    }
}

/// Chat completions of an OpenAI-compatible server, from `{"baseUrl", "apiKey"?, "apiKeyEnv"?, "headers"?,
/// "idleTimeoutMs"?, "eventIdleTimeoutMs"?, "connectTimeoutMs"?, "allowInsecureHttp"?, "maxTokensMember"?,
/// "reasoningInHistory"?, "thinkingMember"?, "extra"?, "models"?}`. `models` says what is known of a model, by name; see
/// [`model_info`].
#[cfg(feature = "http")]
pub fn openai_chat(options: Options<'_>) -> Result<crate::llm::adapters::OpenAiChat> {
    use crate::llm::adapters::OpenAiChat;
    options.value("kind");
    let mut builder = OpenAiChat::builder(options.text("baseUrl")?.unwrap_or_default())
        .allow_insecure_http(options.flag("allowInsecureHttp", false)?)
        .reasoning_in_history(options.flag("reasoningInHistory", false)?)
        .thinking_member(options.flag("thinkingMember", false)?);
    if let Some(key) = options.text("apiKey")? {
        builder = builder.api_key(key);
    }
    if let Some(name) = options.text("apiKeyEnv")? {
        builder = builder.api_key_from_env(name);
    }
    if let Some(name) = options.text("maxTokensMember")? {
        builder = builder.max_tokens_member(name);
    }
    if let Some(limit) = options.duration("idleTimeout")? {
        builder = builder.idle_timeout(limit);
    }
    if let Some(limit) = options.duration("eventIdleTimeout")? {
        builder = builder.event_idle_timeout(limit);
    }
    if let Some(limit) = options.duration("connectTimeout")? {
        builder = builder.connect_timeout(limit);
    }
    for (name, value) in options.members("headers")?.iter() {
        let value =
            value.as_str().ok_or_else(|| options.bad(&format!("the value of header `{name}` is not a text")))?;
        builder = builder.header(name, value);
    }
    for (name, value) in options.members("extra")?.iter() {
        builder = builder.extra_member(name, value.clone());
    }
    for (name, info) in options.members("models")?.iter() {
        builder = builder.model(name, model_info(options.nested(info, &format!("model `{name}`"))?)?);
    }
    options.finish()?;
    builder.build()
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
