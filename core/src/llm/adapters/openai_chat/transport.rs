//! HTTP on the background threads. Bytes travel to the owner's thread through a bounded channel, so that a slow consumer
//! slows the server and not the memory. Dropping the [`Exchange`] drops the response, which closes its socket: HTTP/1.1
//! only, because there an unfinished response cannot leave a usable connection behind.

use super::error::Head;
use crate::background;
use crate::error::Result;
use crate::llm::Failure;
use once_cell::sync::OnceCell;
use reqwest::header::HeaderMap;
use reqwest::{Response, Url, redirect};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::AbortHandle;

/// Reads that may wait for the owner's thread.
const QUEUED_READS: usize = 16;

/// An HTTP client, made when first used: root certificates are not read for an adapter that is never called.
#[derive(Clone)]
pub(super) struct Client {
    made: Arc<OnceCell<reqwest::Client>>,
    is_https: bool,
    is_loopback: bool,
    connect: Duration,
}

/// What came from the server.
pub(super) enum Event {
    Head(Head),
    Bytes(Vec<u8>),
    /// The connection failed, or broke in the middle of the body. Nothing follows.
    Failed(Failure),
}

/// One request under way.
pub(super) struct Exchange {
    events: Receiver<Event>,
    task: AbortHandle,
    _outstanding: background::Outstanding,
}

impl Exchange {
    /// The next event; `None` at the end of the body.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.events.poll_recv(context)
    }

    /// Ends the request from anywhere on the owner's thread.
    pub(super) fn abort_handle(&self) -> AbortHandle {
        self.task.clone()
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Whether the URL's host is this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_address = host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    is_address || host == "localhost" || host.ends_with(".localhost")
}

impl Client {
    pub(super) fn new(url: &Url, connect: Duration) -> Self {
        Self { made: Arc::default(), is_https: url.scheme() == "https", is_loopback: is_loopback(url), connect }
    }

    /// Sends a request in the background.
    pub(super) fn post(&self, url: Url, headers: HeaderMap, body: String) -> Result<Exchange> {
        let (sender, events) = channel(QUEUED_READS);
        let client = self.clone();
        let task = background::handle()?.spawn(async move {
            if let Err(failure) = client.run(url, headers, body, &sender).await {
                let _ = sender.send(Event::Failed(failure)).await;
            }
        });
        Ok(Exchange { events, task: task.abort_handle(), _outstanding: background::Outstanding::new() })
    }

    async fn run(&self, url: Url, headers: HeaderMap, body: String, events: &Sender<Event>) -> Result<(), Failure> {
        let client = self.made.get_or_try_init(|| self.make())?;
        let sent = client.post(url).headers(headers).body(body).send().await;
        let mut response = sent.map_err(|error| failure("cannot reach the provider", error))?;
        if events.send(Event::Head(head(&response))).await.is_err() {
            return Ok(());
        }
        loop {
            let read = response.chunk().await;
            match read.map_err(|error| failure("the connection broke in the middle of the answer", error))? {
                Some(bytes) if events.send(Event::Bytes(bytes.to_vec())).await.is_err() => return Ok(()),
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }

    fn make(&self) -> Result<reqwest::Client, Failure> {
        let tls = tls(self.is_https)?;
        let builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            // A redirect would hand the key and the conversation to an address that nobody configured.
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(self.connect)
            .tcp_nodelay(true);
        // A proxy for the world is in the way of a server on this machine.
        let builder = if self.is_loopback { builder.no_proxy() } else { builder };
        builder.build().map_err(|error| failure("cannot set up HTTP", error))
    }
}

/// TLS with the `ring` provider, which needs no other tool than a C compiler to build, and is passed along instead of
/// installed, because the process's default belongs to the host. Plain http gets no roots, so that it works on a machine
/// without certificates.
fn tls(is_https: bool) -> Result<rustls::ClientConfig, Failure> {
    use rustls_platform_verifier::BuilderVerifierExt;
    let broken = |error: rustls::Error| Failure::new("TRANSPORT", format!("cannot set up TLS: {error}"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().map_err(broken)?;
    let config = match is_https {
        true => config.with_platform_verifier().map_err(broken)?,
        false => config.with_root_certificates(rustls::RootCertStore::empty()),
    };
    Ok(config.with_no_client_auth())
}

fn head(response: &Response) -> Head {
    let text = |name: &str| {
        let value = response.headers().get(name)?.to_str().ok()?.trim();
        (!value.is_empty()).then(|| value.to_owned())
    };
    Head {
        status: response.status().as_u16(),
        retry_after: text("retry-after"),
        request_id: text("x-request-id").or_else(|| text("x-deepseek-request-id")),
        is_json: text("content-type").is_some_and(|kind| kind.to_ascii_lowercase().starts_with("application/json")),
        encoding: text("content-encoding").filter(|encoding| !encoding.eq_ignore_ascii_case("identity")),
    }
}

/// The URL is left out: its query may hold a key.
fn failure(what: &str, error: reqwest::Error) -> Failure {
    let code = if error.is_timeout() { "TIMEOUT" } else { "TRANSPORT" };
    let error = error.without_url();
    let mut message = format!("{what}: {error}");
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        message.push_str(&format!(": {error}"));
        cause = error.source();
    }
    Failure::new(code, message)
}
