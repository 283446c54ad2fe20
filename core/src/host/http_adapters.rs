//! The adapters over HTTP, from JSON options.

use super::adapters::model_info;
use super::options::Options;
use crate::error::{Error, Result};
use crate::json::Value;
use crate::llm::Adapter;
use crate::llm::adapters::http::{HttpBuilder, ImageSource, Wire};
use crate::llm::adapters::openai_chat::Dialect;
use crate::llm::adapters::{AnthropicMessages, OpenAiChat, OpenAiResponses};
use std::rc::Rc;

/// What asks the host for an API key, once per request.
pub type KeyCallback = Rc<dyn Fn() -> Result<String>>;

/// The kinds of adapters that [`http_adapter`] makes.
pub const HTTP_ADAPTERS: [&str; 3] = ["openai-chat", "openai-responses", "anthropic-messages"];

/// An adapter of one of [`HTTP_ADAPTERS`]; `None` for another kind. `key` is a callback for the API key.
///
/// All take `{"baseUrl", "apiKey"?, "apiKeyEnv"?, "headers"?, "firstByteTimeoutMs"?, "idleTimeoutMs"?,
/// "eventIdleTimeoutMs"?, "totalTimeoutMs"?, "connectTimeoutMs"?, "allowInsecureHttp"?, "caFile"?, "proxy"?,
/// "http2"?, "imagesFolder"?, "extra"?, "models"?}`. An empty `proxy` ignores the environment's. `models` says what is known of a
/// model, by name; see [`model_info`].
///
/// `openai-chat` adds `{"dialect"?, "maxTokensMember"?, "reasoningInHistory"?, "thinkingMember"?, "asksUsage"?}`,
/// `openai-responses` `{"reasoningSummary"?, "encryptedReasoning"?}`, and `anthropic-messages` `{"version"?, "betas"?,
/// "cacheMarkers"?, "bearer"?, "defaultMaxTokens"?, "thinkingBudgets"?}`.
pub fn http_adapter(kind: &str, options: Options<'_>, key: Option<KeyCallback>) -> Result<Option<Rc<dyn Adapter>>> {
    options.value("kind");
    let base = options.text("baseUrl")?.unwrap_or_default();
    Ok(Some(match kind {
        "openai-chat" => Rc::new(common(options, OpenAiChat::builder(base), key, chat)?),
        "openai-responses" => Rc::new(common(options, OpenAiResponses::builder(base), key, responses)?),
        "anthropic-messages" => Rc::new(common(options, AnthropicMessages::builder(base), key, messages)?),
        _ => return Ok(None),
    }))
}

fn common<W: Wire>(
    options: Options<'_>,
    mut builder: HttpBuilder<W>,
    key: Option<KeyCallback>,
    own: impl FnOnce(&Options<'_>, HttpBuilder<W>) -> Result<HttpBuilder<W>>,
) -> Result<crate::llm::adapters::http::HttpAdapter<W>> {
    builder = builder.allow_insecure_http(options.flag("allowInsecureHttp", false)?);
    if let Some(key) = options.text("apiKey")? {
        builder = builder.api_key(key);
    }
    if let Some(name) = options.text("apiKeyEnv")? {
        builder = builder.api_key_from_env(name);
    }
    if let Some(read) = key {
        builder = builder.api_key_with(move || read());
    }
    if let Some(limit) = options.duration("firstByteTimeout")? {
        builder = builder.first_byte_timeout(limit);
    }
    if let Some(limit) = options.duration("idleTimeout")? {
        builder = builder.idle_timeout(limit);
    }
    if let Some(limit) = options.duration("eventIdleTimeout")? {
        builder = builder.event_idle_timeout(limit);
    }
    if let Some(limit) = options.duration("totalTimeout")? {
        builder = builder.total_timeout(limit);
    }
    if let Some(limit) = options.duration("connectTimeout")? {
        builder = builder.connect_timeout(limit);
    }
    if let Some(path) = options.text("caFile")? {
        let pem = std::fs::read(&path);
        let unread = |error| Err(options.bad(&format!("the authority's file {path:?} cannot be read: {error}")));
        builder = builder.ca_certificates(pem.or_else(unread)?);
    }
    match options.text("proxy")? {
        Some(proxy) if proxy.is_empty() => builder = builder.no_proxy(),
        Some(proxy) => builder = builder.proxy(proxy),
        None => {}
    }
    builder = builder.http2_prior_knowledge(options.flag("http2", false)?);
    if let Some(folder) = options.text("imagesFolder")? {
        builder = builder.images(ImageSource::Folder(folder.into()));
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
    builder = own(&options, builder)?;
    options.finish()?;
    builder.build()
}

fn flag(options: &Options<'_>, name: &str) -> Result<Option<bool>> {
    options.read(name, "true or false", Value::as_bool)
}

fn chat(
    options: &Options<'_>,
    mut builder: crate::llm::adapters::openai_chat::OpenAiChatBuilder,
) -> Result<crate::llm::adapters::openai_chat::OpenAiChatBuilder> {
    if let Some(name) = options.text("dialect")? {
        let unknown = || -> Error {
            let known = Dialect::ALL.map(|(name, _)| name).join(", ");
            options.bad(&format!("there is no dialect {name:?}; there are: {known}"))
        };
        builder = builder.dialect(Dialect::parse(&name).ok_or_else(unknown)?);
    }
    if let Some(name) = options.text("maxTokensMember")? {
        builder = builder.max_tokens_member(name);
    }
    if let Some(send) = flag(options, "reasoningInHistory")? {
        builder = builder.reasoning_in_history(send);
    }
    if let Some(send) = flag(options, "thinkingMember")? {
        builder = builder.thinking_member(send);
    }
    Ok(builder.asks_usage(options.flag("asksUsage", true)?))
}

fn responses(
    options: &Options<'_>,
    mut builder: crate::llm::adapters::openai_responses::OpenAiResponsesBuilder,
) -> Result<crate::llm::adapters::openai_responses::OpenAiResponsesBuilder> {
    if let Some(style) = options.text("reasoningSummary")? {
        builder = builder.reasoning_summary(style);
    }
    Ok(builder.encrypted_reasoning(options.flag("encryptedReasoning", true)?))
}

fn messages(
    options: &Options<'_>,
    mut builder: crate::llm::adapters::anthropic_messages::AnthropicMessagesBuilder,
) -> Result<crate::llm::adapters::anthropic_messages::AnthropicMessagesBuilder> {
    if let Some(version) = options.text("version")? {
        builder = builder.version(version);
    }
    for name in options.texts("betas")?.unwrap_or_default() {
        builder = builder.beta(name);
    }
    builder = builder.cache_markers(options.flag("cacheMarkers", true)?).bearer(options.flag("bearer", false)?);
    if let Some(tokens) = options.count("defaultMaxTokens")? {
        builder = builder.default_max_tokens(tokens);
    }
    for (effort, tokens) in options.members("thinkingBudgets")?.iter() {
        let tokens = tokens.as_u64().ok_or_else(|| options.bad("a thinking budget is a whole number of tokens"))?;
        builder = builder.thinking_budget(effort, tokens);
    }
    Ok(builder)
}
