//! HTTP on the background threads. Bytes travel to the owner's thread through a bounded channel, so that a slow consumer
//! slows the server and not the memory. Dropping the [`Exchange`] drops the response: over HTTP/1.1 that closes the
//! socket, over HTTP/2 it resets the stream. Either way the server hears of it at once.

use super::error::Head;
use crate::background;
use crate::error::{Code, Error, Result};
use crate::llm::Failure;
use once_cell::sync::OnceCell;
use reqwest::header::HeaderMap;
use reqwest::{Response, Url, redirect};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::AbortHandle;

/// Reads that may wait for the owner's thread.
const QUEUED_READS: usize = 16;

/// How connections are made.
#[derive(Clone, Default)]
pub(super) struct Connection {
    pub(super) connect: Duration,
    pub(super) ca_pem: Option<Vec<u8>>,
    pub(super) proxy: Proxy,
    pub(super) http2_only: bool,
}

#[derive(Clone, Default)]
pub(super) enum Proxy {
    #[default]
    Environment,
    None,
    Url(String),
}

/// An HTTP client, made when first used: root certificates are not read for an adapter that is never called.
#[derive(Clone)]
pub(super) struct Client {
    made: Arc<OnceCell<reqwest::Client>>,
    is_https: bool,
    is_loopback: bool,
    connection: Connection,
    authorities: Vec<CertificateDer<'static>>,
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
    /// Checks what can be checked without a network.
    pub(super) fn new(url: &Url, connection: Connection) -> Result<Self> {
        let invalid = |message: String| Error::new(Code::InvalidArgument, message);
        if let Proxy::Url(proxy) = &connection.proxy {
            // The URL may hold a password.
            reqwest::Proxy::all(proxy).map_err(|_| invalid("the proxy is not a URL that can be used".into()))?;
        }
        let mut authorities = Vec::new();
        if let Some(pem) = &connection.ca_pem {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let broken = |error| invalid(format!("the authority's certificates are not PEM: {error}"));
                authorities.push(certificate.map_err(broken)?);
            }
            if authorities.is_empty() {
                return Err(invalid("the authority's PEM text holds no certificate".into()));
            }
        }
        let (is_https, is_loopback) = (url.scheme() == "https", is_loopback(url));
        Ok(Self { made: Arc::default(), is_https, is_loopback, connection, authorities })
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
        let builder = reqwest::Client::builder()
            .tls_backend_preconfigured(self.tls()?)
            // A redirect would hand the key and the conversation to an address that nobody configured.
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(self.connection.connect)
            .tcp_nodelay(true);
        let builder = match &self.connection.proxy {
            Proxy::Url(url) => {
                let proxy = reqwest::Proxy::all(url).map_err(|error| failure("cannot use the proxy", error))?;
                builder.no_proxy().proxy(proxy)
            }
            Proxy::None => builder.no_proxy(),
            // A proxy for the world is in the way of a server on this machine.
            Proxy::Environment if self.is_loopback => builder.no_proxy(),
            Proxy::Environment => builder,
        };
        let builder = match self.connection.http2_only {
            true => builder.http2_prior_knowledge(),
            false if self.is_https => builder,
            false => builder.http1_only(),
        };
        builder.build().map_err(|error| failure("cannot set up HTTP", error))
    }

    /// TLS with the `ring` provider, which needs no other tool than a C compiler to build, and is passed along instead
    /// of installed, because the process's default belongs to the host. Plain http gets no roots, so that it works on a
    /// machine without certificates.
    fn tls(&self) -> Result<rustls::ClientConfig, Failure> {
        use rustls_platform_verifier::{BuilderVerifierExt, Verifier};
        let broken = |error: rustls::Error| Failure::new("TRANSPORT", format!("cannot set up TLS: {error}"));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider.clone());
        let config = config.with_safe_default_protocol_versions().map_err(broken)?;
        let config = if !self.is_https {
            config.with_root_certificates(rustls::RootCertStore::empty())
        } else if self.authorities.is_empty() {
            config.with_platform_verifier().map_err(broken)?
        } else {
            let verifier = Verifier::new_with_extra_roots(self.authorities.clone(), provider).map_err(broken)?;
            config.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        };
        let mut config = config.with_no_client_auth();
        let both: &[&[u8]] = if self.connection.http2_only { &[b"h2"] } else { &[b"h2", b"http/1.1"] };
        config.alpn_protocols = both.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }
}

fn head(response: &Response) -> Head {
    let text = |name: &str| {
        let value = response.headers().get(name)?.to_str().ok()?.trim();
        (!value.is_empty()).then(|| value.to_owned())
    };
    Head {
        status: response.status().as_u16(),
        // LiteLLM passes a provider's own headers on under names of its own.
        retry_after: text("retry-after").or_else(|| text("llm_provider-retry-after")),
        request_id: text("x-request-id").or_else(|| text("x-deepseek-request-id")).or_else(|| text("request-id")),
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
