//! The transport against servers that speak TLS, HTTP/2, compressed bodies, and through proxies.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used)]

#[path = "support/http.rs"]
mod http;
#[path = "support/traced.rs"]
mod traced;

use http::{HEAD, KEY, answer, collect, request, serve, text_of};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use turnwheel::llm::Failure;
use turnwheel::llm::adapters::OpenAiChat;

const ANSWER: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn brotli(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    brotli::CompressorWriter::new(&mut out, 4096, 5, 20).write_all(text.as_bytes()).unwrap();
    out
}

fn deflate(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_compressed_body_is_read_though_none_is_asked_for() {
    for (name, body) in [("gzip", gzip(ANSWER)), ("br", brotli(ANSWER)), ("deflate", deflate(ANSWER))] {
        let head = HEAD.replace("\r\n\r\n", &format!("\r\ncontent-encoding: {name}\r\nconnection: close\r\n\r\n"));
        let (url, served) = serve(move |socket, request| {
            socket.write_all(head.as_bytes()).unwrap();
            // Any cut of a compressed body is as good as any other.
            for byte in body {
                socket.write_all(&[byte]).unwrap();
            }
            request.to_owned()
        });
        let (chunks, failure) = collect(&OpenAiChat::builder(&url).build().unwrap(), request());
        assert_eq!((failure, text_of(&chunks).as_str()), (None, "hello"), "{name}");
        assert!(served.recv().unwrap().contains("accept-encoding: identity"));
    }
    let head = HEAD.replace("\r\n\r\n", "\r\ncontent-encoding: zstd\r\nconnection: close\r\n\r\n");
    let (url, _served) = answer(format!("{head}xxxx"));
    let failure = collect(&OpenAiChat::builder(&url).build().unwrap(), request()).1.unwrap();
    assert_eq!(failure.code, "MALFORMED_RESPONSE");
    assert!(failure.message.contains("zstd"));
}

/// A TLS server for one connection, with a certificate of a private authority; returns its URL and the authority's PEM.
fn serve_tls(answer: String) -> (String, String) {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let pem = certified.cert.pem();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certified.cert.der().clone()], key.into()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = rustls::Stream::new(&mut connection, &mut socket);
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        while !seen.windows(4).any(|window| window == b"\r\n\r\n") {
            match stream.read(&mut buffer) {
                Ok(read) if read > 0 => seen.extend_from_slice(&buffer[..read]),
                _ => return,
            }
        }
        let _ = stream.write_all(answer.as_bytes());
        stream.conn.send_close_notify();
        let _ = stream.flush();
    });
    (url, pem)
}

#[test]
fn tls_is_verified_and_a_private_authority_is_trusted_only_when_given() {
    let text = format!("{}{ANSWER}", HEAD.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n"));
    let (url, _pem) = serve_tls(text.clone());
    let failure = collect(&OpenAiChat::builder(&url).api_key(KEY).build().unwrap(), request()).1.unwrap();
    assert_eq!(failure.code, "TRANSPORT", "{}", failure.message);
    assert!(failure.message.to_lowercase().contains("certificate"), "{}", failure.message);
    let (url, pem) = serve_tls(text);
    let adapter = OpenAiChat::builder(&url).api_key(KEY).ca_certificates(pem).build().unwrap();
    let (chunks, failure) = collect(&adapter, request());
    assert_eq!((failure, text_of(&chunks).as_str()), (None, "hello"));
    for rubbish in ["", "no pem", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
        assert!(OpenAiChat::builder("https://e.com").ca_certificates(rubbish).build().is_err(), "{rubbish:?}");
    }
}

#[test]
fn http_2_is_spoken_and_a_cancel_resets_the_stream() {
    traced::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (told, reset) = channel();
    runtime.spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(socket).await.unwrap();
        let mut number = 0;
        while let Some(Ok((_request, mut respond))) = connection.accept().await {
            number += 1;
            let head = hyper_http::Response::builder().header("content-type", "text/event-stream").body(()).unwrap();
            let mut body = respond.send_response(head, false).unwrap();
            let is_whole = number == 1;
            let text = if is_whole { ANSWER } else { ANSWER.split_inclusive("\n\n").next().unwrap() };
            body.send_data(text.into(), is_whole).unwrap();
            let told = told.clone();
            tokio::spawn(async move {
                let reset = std::future::poll_fn(|context| body.poll_reset(context)).await;
                let _ = told.send(reset.is_ok());
            });
        }
    });
    let adapter = OpenAiChat::builder(&url).api_key(KEY).http2_prior_knowledge(true).build().unwrap();
    let (chunks, failure) = collect(&adapter, request());
    assert_eq!((failure, text_of(&chunks).as_str()), (None, "hello"));
    let asked = request();
    let signal = asked.signal.clone();
    turnwheel::runtime::Runtime::default().block_on(async {
        use turnwheel::llm::{Adapter, Chunk};
        let mut stream = adapter.stream(asked);
        while !matches!(http::next(&mut stream).await, Some(Ok(Chunk::TextDelta { .. }))) {}
        signal.cancel(turnwheel::CancelCause::User);
        let is_reset = loop {
            // The first stream ended properly and may say so, too.
            match reset.recv_timeout(std::time::Duration::from_secs(2)) {
                Ok(true) => break true,
                Ok(false) => {}
                Err(_) => break false,
            }
        };
        assert!(is_reset, "the server hears of the cancellation");
    });
    let traced = traced::text();
    assert!(traced.contains("h2::") && !traced.contains(KEY), "HTTP/2 traces frames and no key:\n{traced}");
}

#[test]
fn a_proxy_is_used_when_it_is_given() {
    let (proxy, seen) = answer(format!("{}{ANSWER}", HEAD.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n")));
    let builder = OpenAiChat::builder("http://model.example/v1").allow_insecure_http(true);
    let adapter = builder.proxy(proxy.trim_end_matches("/v1/")).build().unwrap();
    let (chunks, failure) = collect(&adapter, request());
    assert_eq!((failure, text_of(&chunks).as_str()), (None, "hello"));
    assert!(seen.recv().unwrap().starts_with("POST http://model.example/v1/chat/completions "));
    assert!(OpenAiChat::builder("https://e.com").proxy("::nonsense::").build().is_err());
}

/// How long it takes to give up, and with what.
fn given_up(url: &str) -> (Duration, Failure) {
    let limit = Duration::from_millis(300);
    let chat = OpenAiChat::builder(url).allow_insecure_http(true).connect_timeout(limit).build().unwrap();
    let start = Instant::now();
    let (chunks, failure) = collect(&chat, request());
    assert_eq!(text_of(&chunks), "");
    (start.elapsed(), failure.expect("nobody answers"))
}

#[test]
fn a_connection_that_is_never_made_is_given_up_after_the_connect_limit() {
    // A listener whose queue is full: the kernel drops whatever else knocks.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        waiting.push(stream);
        assert!(waiting.len() < 50, "the queue never fills");
    }
    let (time, failure) = given_up(&format!("http://{address}/v1"));
    assert_eq!(failure.code, "TIMEOUT", "{failure:?}");
    assert!((Duration::from_millis(290)..Duration::from_secs(3)).contains(&time), "{time:?}");
}

#[test]
fn a_handshake_that_never_ends_counts_as_connecting() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/v1", listener.local_addr().unwrap());
    let (time, failure) = given_up(&url);
    assert_eq!(failure.code, "TIMEOUT", "{failure:?}");
    assert!((Duration::from_millis(290)..Duration::from_secs(3)).contains(&time), "{time:?}");
}
