//! The adapter against a real HTTP server on loopback, whose bytes are written by hand.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used)]

#[path = "support/http.rs"]
mod http;

use http::*;
use std::future::poll_fn;
use std::io::{ErrorKind, Write};
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::Poll;
use std::time::{Duration, Instant};
use turnwheel::llm::adapters::OpenAiChat;
use turnwheel::llm::adapters::openai_chat::OpenAiChatBuilder;
use turnwheel::llm::{Adapter, Chunk, Failure, FinishReason, ModelRequest};
use turnwheel::message::{Block, Message};
use turnwheel::runtime::{ManualClock, Runtime};
use turnwheel::session::{CancelCause, History};

fn adapter(url: &str) -> OpenAiChat {
    builder(url).build().unwrap()
}

fn builder(url: &str) -> OpenAiChatBuilder {
    OpenAiChat::builder(url).api_key(KEY)
}

/// The `messages` that are sent for a history.
fn sent(history: Vec<Message>) -> String {
    let (url, served) = answer(format!("{HEAD}{HELLO}{STOP}{DONE}"));
    let messages = History::from_messages(history.into_iter().map(Arc::new).collect());
    collect(&adapter(&url), ModelRequest { messages, ..request() });
    let sent = served.recv().unwrap();
    let body = turnwheel::json::parse(sent.split_once("\r\n\r\n").unwrap().1).unwrap();
    body.get("messages").unwrap().to_text()
}

fn failure_of(answer_text: &str) -> Failure {
    let (url, _served) = answer(answer_text);
    collect(&adapter(&url), request()).1.unwrap()
}

#[test]
fn an_answer_streams_and_the_request_is_what_the_wire_wants() {
    let (url, served) = answer(format!("{HEAD}{HELLO}{STOP}{DONE}"));
    let adapter = builder(&url).header("x-team", "blue").build().unwrap();
    let (chunks, failure) = collect(&adapter, request());
    assert_eq!((text_of(&chunks).as_str(), failure), ("hello", None));
    assert!(matches!(chunks.last(), Some(Chunk::Finish { reason: FinishReason::Stop, .. })));
    let sent = served.recv().unwrap();
    assert!(sent.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "one slash: {sent}");
    for header in
        ["authorization: Bearer sk-very", "user-agent: turnwheel/", "accept: text/event-stream", "x-team: blue"]
    {
        assert!(sent.contains(header), "{header} in {sent}");
    }
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}"#;
    assert!(sent.ends_with(body), "{sent}");
}

#[test]
fn chunks_arrive_while_the_answer_is_still_being_made() {
    let (go, wait) = channel::<()>();
    let (url, _served) = serve(move |socket, _| {
        socket.write_all(format!("{HEAD}{HELLO}").as_bytes()).unwrap();
        wait.recv().unwrap();
        socket.write_all(format!("{STOP}{DONE}").as_bytes()).unwrap();
    });
    Runtime::default().block_on(async {
        let mut stream = adapter(&url).stream(request());
        assert!(matches!(next(&mut stream).await, Some(Ok(Chunk::BlockStart { .. }))));
        assert!(matches!(next(&mut stream).await, Some(Ok(Chunk::TextDelta { .. }))));
        go.send(()).unwrap();
        assert!(matches!(next(&mut stream).await, Some(Ok(Chunk::BlockEnd { .. }))));
        assert!(matches!(next(&mut stream).await, Some(Ok(Chunk::Finish { .. }))));
        assert!(next(&mut stream).await.is_none());
    });
}

#[test]
fn case_008_heartbeats_before_the_answer() {
    let (url, _served) = serve(|socket, _| {
        socket.write_all(HEAD.as_bytes()).unwrap();
        for _ in 0..8 {
            socket.write_all(b":\n\n").unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        socket.write_all(format!("{HELLO}{STOP}{DONE}").as_bytes()).unwrap();
    });
    let adapter = builder(&url).idle_timeout(Duration::from_millis(500)).build().unwrap();
    let (chunks, failure) = collect(&adapter, request());
    assert_eq!((text_of(&chunks).as_str(), failure), ("hello", None));
}

#[test]
fn case_011_done_ends_the_answer_although_the_socket_stays_open() {
    let (url, served) = serve(|socket, _| {
        socket.write_all(format!("{HEAD}{HELLO}{STOP}{DONE}").as_bytes()).unwrap();
        time_until_closed(socket)
    });
    let start = Instant::now();
    let (chunks, failure) = collect(&adapter(&url), request());
    assert_eq!((text_of(&chunks).as_str(), failure), ("hello", None));
    assert!(start.elapsed() < Duration::from_secs(1));
    assert!(served.recv().unwrap().is_some(), "the socket is closed from our side");
}

#[test]
fn case_013_finish_reason_then_a_broken_connection() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n";
    let (url, _served) = answer(format!("{head}{HELLO}{STOP}"));
    let (chunks, failure) = collect(&adapter(&url), request());
    assert_eq!((text_of(&chunks).as_str(), failure), ("hello", None));
}

#[test]
fn case_022_retry_after_is_reported_and_not_slept() {
    let start = Instant::now();
    let body = r#"{"error":{"message":"slow down"}}"#;
    let failure = failure_of(&format!(
        "HTTP/1.1 429 Too Many Requests\r\nretry-after: 3600\r\nx-request-id: req-9\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!((failure.code.as_str(), failure.message.as_str()), ("RATE_LIMIT", "slow down"));
    assert_eq!((failure.status, failure.provider_retry_after_ms), (Some(429), Some(3_600_000.0)));
    assert_eq!(failure.request_id.as_deref(), Some("req-9"));
    assert!(start.elapsed() < Duration::from_secs(1));
    // As LiteLLM passes a provider's header on; its own comes first.
    for (headers, expected) in
        [("llm_provider-retry-after: 7", 7_000.0), ("llm_provider-retry-after: 7\r\nretry-after: 30", 30_000.0)]
    {
        let failure =
            failure_of(&format!("HTTP/1.1 429 Too Many Requests\r\n{headers}\r\ncontent-length: 2\r\n\r\n{{}}"));
        assert_eq!(failure.provider_retry_after_ms, Some(expected), "{headers}");
    }
}

#[test]
fn case_023_silence_and_keep_alive_alone_end_with_a_timeout() {
    for pings in [false, true] {
        let (url, served) = serve(move |socket, _| {
            socket.write_all(format!("{HEAD}{HELLO}").as_bytes()).unwrap();
            if !pings {
                return time_until_closed(socket).is_some();
            }
            // Writing fails once the peer has closed.
            (0..200).any(|_| {
                std::thread::sleep(Duration::from_millis(20));
                socket.write_all(b": ping\n\n").is_err()
            })
        });
        let limit = Duration::from_millis(200);
        let builder = builder(&url);
        let adapter = if pings { builder.event_idle_timeout(limit) } else { builder.idle_timeout(limit) };
        let start = Instant::now();
        let (chunks, failure) = collect(&adapter.build().unwrap(), request());
        assert_eq!((text_of(&chunks).as_str(), failure.unwrap().code.as_str()), ("hello", "TIMEOUT"));
        assert!(start.elapsed() >= limit && start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        assert!(served.recv().unwrap(), "the socket is closed");
    }
}

#[test]
fn the_idle_limit_covers_the_wait_for_the_first_byte_and_runs_on_the_clock_port() {
    let (arrived, reached) = channel();
    let (url, _served) = serve(move |socket, _| {
        arrived.send(()).unwrap();
        time_until_closed(socket)
    });
    let clock = ManualClock::new(0);
    let adapter = builder(&url).clock(Rc::new(clock.clone())).build().unwrap();
    Runtime::default().block_on(async {
        let mut stream = adapter.stream(request());
        let first = poll_fn(|context| Poll::Ready(stream.as_mut().poll_next(context).is_pending())).await;
        assert!(first);
        reached.recv().unwrap();
        clock.advance(Duration::from_secs(299));
        let early = poll_fn(|context| Poll::Ready(stream.as_mut().poll_next(context).is_pending())).await;
        assert!(early, "one second is left");
        clock.advance(Duration::from_secs(1));
        let failure = next(&mut stream).await.unwrap().unwrap_err().failure().unwrap().clone();
        assert_eq!(failure.code, "TIMEOUT");
        assert!(next(&mut stream).await.is_none());
    });
}

#[test]
fn the_consumers_own_time_does_not_count_as_silence() {
    let (url, _served) = serve(|socket, _| {
        socket.write_all(format!("{HEAD}{HELLO}").as_bytes()).unwrap();
        time_until_closed(socket)
    });
    let clock = ManualClock::new(0);
    let adapter = builder(&url).clock(Rc::new(clock.clone())).build().unwrap();
    Runtime::default().block_on(async {
        let mut stream = adapter.stream(request());
        next(&mut stream).await.unwrap().unwrap();
        next(&mut stream).await.unwrap().unwrap();
        clock.advance(Duration::from_secs(3600));
        let waits = poll_fn(|context| Poll::Ready(stream.as_mut().poll_next(context).is_pending())).await;
        assert!(waits, "the wait begins now");
    });
}

#[test]
fn case_068_cancelling_closes_the_socket() {
    // (the answer has begun, the stream is polled after the cancellation, the stream is dropped instead)
    for (begun, polled, dropped) in
        [(true, true, false), (true, false, false), (false, true, false), (true, false, true)]
    {
        let (arrived, reached) = channel();
        let (url, closed) = serve(move |socket, _| {
            if begun {
                socket.write_all(format!("{HEAD}{HELLO}").as_bytes()).unwrap();
            }
            arrived.send(()).unwrap();
            time_until_closed(socket)
        });
        Runtime::default().block_on(async {
            let request = request();
            let signal = request.signal.clone();
            let mut stream = adapter(&url).stream(request);
            if begun {
                next(&mut stream).await.unwrap().unwrap();
            } else {
                poll_fn(|context| Poll::Ready(stream.as_mut().poll_next(context).is_pending())).await;
            }
            reached.recv().unwrap();
            let start = Instant::now();
            if dropped {
                drop(stream);
            } else {
                signal.cancel(CancelCause::User);
                if polled {
                    match next(&mut stream).await {
                        Some(Ok(Chunk::Finish { reason: FinishReason::Aborted(failure), .. })) => {
                            assert_eq!(failure.code, "ABORTED");
                        }
                        other => panic!("{other:?}"),
                    }
                    assert!(next(&mut stream).await.is_none());
                }
            }
            assert!(closed.recv().unwrap().is_some(), "the server sees the end");
            assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
        });
    }
}

#[test]
fn a_request_cancelled_before_its_first_poll_is_never_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let adapter = adapter(&format!("http://{}", listener.local_addr().unwrap()));
    let request = request();
    request.signal.cancel(CancelCause::User);
    assert_eq!(collect(&adapter, request).1.unwrap().code, "ABORTED");
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn http_errors_are_classed() {
    let error = |status: &str, body: &str| {
        let failure = failure_of(&format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{body}"
        ));
        (failure.code, failure.status.unwrap())
    };
    let overflow = r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error"}}"#;
    assert_eq!(error("400 Bad Request", overflow), ("CONTEXT_WINDOW_EXCEEDED".into(), 400));
    assert_eq!(error("400 Bad Request", "{}"), ("INVALID_REQUEST".into(), 400));
    assert_eq!(error("401 Unauthorized", ""), ("AUTH".into(), 401));
    assert_eq!(error("404 Not Found", "<html>"), ("HTTP_404".into(), 404));
    assert_eq!(error("503 Unavailable", "{}"), ("SERVER".into(), 503));
}

#[test]
fn an_error_status_whose_body_never_ends_is_still_reported() {
    let (url, _served) = serve(|socket, _| {
        socket.write_all(b"HTTP/1.1 429 Too Many\r\n\r\n{\"error\"").unwrap();
        time_until_closed(socket)
    });
    let adapter = builder(&url).idle_timeout(Duration::from_millis(100)).build().unwrap();
    let failure = collect(&adapter, request()).1.unwrap();
    assert_eq!((failure.code.as_str(), failure.status), ("RATE_LIMIT", Some(429)));
}

#[test]
fn a_refused_connection_is_a_transport_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let failure = collect(&adapter(&url), request()).1.unwrap();
    assert_eq!((failure.code.as_str(), failure.status), ("TRANSPORT", None));
    assert!(failure.message.contains("refused"), "{}", failure.message);
}

#[test]
fn an_answer_cut_in_the_middle_is_a_failure() {
    let cut = failure_of(&format!("{HEAD}{HELLO}"));
    assert_eq!((cut.code.as_str(), cut.request_id.as_deref()), ("STREAM_CLOSED", Some("req-7")));
    let short = format!("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{HELLO}");
    assert_eq!(failure_of(&short).code, "TRANSPORT");
    assert_eq!(failure_of("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").code, "EMPTY_RESPONSE");
    assert_eq!(failure_of("").code, "TRANSPORT");
}

#[test]
fn a_redirect_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let target = listener.local_addr().unwrap();
    for status in [302, 307, 308] {
        let head = format!("HTTP/1.1 {status} Moved\r\nlocation: http://{target}/\r\ncontent-length: 0\r\n\r\n");
        let failure = failure_of(&head);
        assert_eq!((failure.code, failure.status), (format!("HTTP_{status}"), Some(status)));
        assert!(failure.message.contains("redirects"));
    }
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "nobody went there");
}

#[test]
fn an_answer_that_does_not_stream_is_read_too() {
    let body = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\nconnection: close\r\n\r\n";
    let (url, _served) = answer(format!("{head}{body}"));
    let (chunks, failure) = collect(&adapter(&url), request());
    assert_eq!((text_of(&chunks).as_str(), failure), ("hello", None));
    let error = failure_of(&format!("{head}{}", r#"{"error":{"message":"m","code":429}}"#));
    assert_eq!(error.code, "RATE_LIMIT");
}

#[test]
fn the_key_is_shown_nowhere() {
    let echo = format!("{{\"error\":{{\"message\":\"Incorrect API key provided: {KEY}\"}}}}");
    let (url, _served) = answer(format!("HTTP/1.1 401 Unauthorized\r\nconnection: close\r\n\r\n{echo}"));
    let adapter = builder(&url).header("x-secret", KEY).build().unwrap();
    let failure = collect(&adapter, request()).1.unwrap();
    assert_eq!(failure.message, "Incorrect API key provided: [key]");
    let builder = builder(&url).header("x-secret", KEY);
    assert!(!format!("{adapter:?} {builder:?} {failure:?}").contains("very-secret"));
    for key in ["", "  ", "two words", "schlüssel-geheim", "line\nbreak"] {
        let error = OpenAiChat::builder("https://example.com/v1").api_key(key).build().unwrap_err();
        assert_eq!(error.failure().unwrap().code, "INVALID_CREDENTIAL");
        assert!(key.trim().is_empty() || !format!("{error:?}").contains(key));
    }
    let padded = OpenAiChat::builder("https://example.com/v1").api_key("  sk-padded\n").build();
    assert!(padded.is_ok(), "a key is trimmed");
}

#[test]
fn a_key_comes_from_a_callback_or_the_environment_once_per_request() {
    let (url, served) = answer(format!("{HEAD}{HELLO}{STOP}{DONE}"));
    let adapter = OpenAiChat::builder(&url).api_key_with(|| Ok("from-callback".into())).build().unwrap();
    assert_eq!(collect(&adapter, request()).1, None);
    assert!(served.recv().unwrap().contains("authorization: Bearer from-callback"));
    let adapter = OpenAiChat::builder(&url).api_key_from_env("TURNWHEEL_TEST_NO_SUCH_KEY").build().unwrap();
    assert_eq!(collect(&adapter, request()).1.unwrap().code, "MISSING_CREDENTIAL");
    let (url, served) = answer(format!("{HEAD}{HELLO}{STOP}{DONE}"));
    let adapter = OpenAiChat::builder(&url).build().unwrap();
    assert_eq!(collect(&adapter, request()).1, None);
    assert!(!served.recv().unwrap().contains("authorization"), "no key, no header");
}

#[test]
fn options_that_cannot_work_are_refused_when_building() {
    let refused = |builder: OpenAiChatBuilder| builder.build().unwrap_err().message().to_owned();
    assert!(refused(OpenAiChat::builder("http://example.com/v1")).contains("allow_insecure_http"));
    assert!(OpenAiChat::builder("http://example.com/v1").allow_insecure_http(true).build().is_ok());
    for base in ["http://localhost:1", "http://127.8.0.1:1", "http://[::1]:1", "https://example.com/v1/"] {
        assert!(OpenAiChat::builder(base).build().is_ok(), "{base}");
    }
    assert!(refused(OpenAiChat::builder("https://user:pass@example.com")).contains("password"));
    assert!(refused(OpenAiChat::builder("ftp://example.com")).contains("ftp"));
    assert!(refused(OpenAiChat::builder("no url")).contains("base URL"));
    assert!(refused(OpenAiChat::builder("https://e.com").header("a b", "x")).contains("header name"));
    assert!(refused(OpenAiChat::builder("https://e.com").extra_member("stream", false)).contains("stream"));
    assert!(refused(OpenAiChat::builder("https://e.com").max_tokens_member("limit")).contains("max_completion_tokens"));
}

#[test]
fn https_reports_a_peer_that_speaks_no_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    assert_eq!(collect(&adapter(&url), request()).1.unwrap().code, "TRANSPORT");
}

#[test]
fn case_043_malformed_arguments_go_back_as_the_text_they_are() {
    let result = Message::tool_result("r", "c".into(), vec![Block::Text("not JSON".into())], true);
    let expected = concat!(
        r#"[{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"f","#,
        r#""arguments":"{\"a\":"}}]},{"role":"tool","tool_call_id":"c","content":"not JSON"}]"#
    );
    assert_eq!(sent(vec![assistant(vec![call("{\"a\":")]), result]), expected);
}

#[test]
fn case_055_empty_text_beside_a_call() {
    let sent = sent(vec![assistant(vec![Block::Text(String::new()), call("{}")])]);
    let call = r#"{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}"#;
    assert_eq!(sent, format!(r#"[{{"role":"assistant","content":"","tool_calls":[{call}]}}]"#));
}

#[test]
fn case_056_reasoning_alone_and_silent_tools() {
    let result = Message::tool_result("r", "c".into(), Vec::new(), false);
    let thoughts = assistant(vec![Block::Reasoning("hm".into())]);
    let empty = assistant(Vec::new());
    let sent = sent(vec![Message::user_text("u", "hi"), thoughts, empty, assistant(vec![call("")]), result]);
    let expected = concat!(
        r#"[{"role":"user","content":"hi"},{"role":"assistant","content":"","tool_calls":[{"id":"c","#,
        r#""type":"function","function":{"name":"f","arguments":"{}"}}]},"#,
        r#"{"role":"tool","tool_call_id":"c","content":"(no output)"}]"#
    );
    assert_eq!(sent, expected);
}

#[test]
fn case_095_an_image_from_a_tool_becomes_text() {
    let image = Block::Other(turnwheel::json!({"type": "image", "data": "aGk="}));
    let result = Message::tool_result("r", "c".into(), vec![Block::Text("see ".into()), image], false);
    let expected =
        r#"{"role":"tool","tool_call_id":"c","content":"see [image omitted: this model is sent text only]"}"#;
    assert_eq!(sent(vec![result]), format!("[{expected}]"));
}
