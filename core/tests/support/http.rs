//! A real HTTP server on loopback whose bytes are written by hand.
#![allow(dead_code, clippy::unwrap_used)]

use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use turnwheel::llm::{Adapter, CallConfig, Chunk, ChunkStream, Failure, FinishReason, ModelRequest, RequestHeader};
use turnwheel::message::{Block, Message, Role, Source};
use turnwheel::runtime::{Runtime, Signal};
use turnwheel::session::History;

pub const KEY: &str = "sk-very-secret-0123456789";
pub const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: req-7\r\n\r\n";
pub const HELLO: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"}}]}\n\n";
pub const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
pub const DONE: &str = "data: [DONE]\n\n";

/// Serves one connection by `script`, which gets the request's text. The socket closes when the script returns.
pub fn serve<T: Send + 'static>(
    script: impl FnOnce(&mut TcpStream, &str) -> T + Send + 'static,
) -> (String, Receiver<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let request = read_request(&mut socket);
        let _ = sender.send(script(&mut socket, &request));
    });
    (url, receiver)
}

pub fn read_request(socket: &mut TcpStream) -> String {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = socket.read(&mut buffer).unwrap();
        bytes.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if read == 0 || body.len() >= length.parse::<usize>().unwrap() {
            return text;
        }
    }
}

/// Answers and closes.
pub fn answer(text: impl Into<String>) -> (String, Receiver<String>) {
    let text = text.into();
    serve(move |socket, request| {
        socket.write_all(text.as_bytes()).unwrap();
        request.to_owned()
    })
}

/// How long it takes until the peer closes; `None` if it does not within two seconds.
pub fn time_until_closed(socket: &mut TcpStream) -> Option<Duration> {
    let start = Instant::now();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    match socket.read(&mut [0; 16]) {
        Ok(0) => Some(start.elapsed()),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Some(start.elapsed()),
        _ => None,
    }
}

pub fn request() -> ModelRequest {
    let header = RequestHeader {
        config: CallConfig::new("p", "m"),
        adapter_defaults: Default::default(),
        system: None,
        tools: Vec::new(),
    };
    let messages = History::from_messages(vec![Arc::new(Message::user_text("u", "hi"))]);
    ModelRequest { header: Arc::new(header), messages, session_id: None, signal: Signal::new() }
}

pub async fn next(stream: &mut ChunkStream) -> Option<turnwheel::Result<Chunk>> {
    poll_fn(|context| stream.as_mut().poll_next(context)).await
}

/// All chunks, and the failure of an error item or a failing finish.
pub fn collect(adapter: &dyn Adapter, request: ModelRequest) -> (Vec<Chunk>, Option<Failure>) {
    Runtime::default().block_on(async {
        let mut stream = adapter.stream(request);
        let (mut chunks, mut failure) = (Vec::new(), None);
        while let Some(item) = next(&mut stream).await {
            assert!(failure.is_none(), "nothing follows a failure");
            match item {
                Ok(Chunk::Finish { reason: FinishReason::Error(found) | FinishReason::Aborted(found), .. }) => {
                    failure = Some(*found);
                }
                Ok(chunk) => chunks.push(chunk),
                Err(error) => failure = Some(error.failure().unwrap().clone()),
            }
        }
        (chunks, failure)
    })
}

pub fn assistant(content: Vec<Block>) -> Message {
    let source = Source::Model { provider: "p".into(), model: "m".into(), replay_state: None };
    Message::new("a", Role::Assistant, content, source)
}

pub fn call(arguments: &str) -> Block {
    Block::ToolCall { id: "c".into(), name: "f".into(), arguments: arguments.into() }
}

pub fn text_of(chunks: &[Chunk]) -> String {
    let deltas = chunks.iter().filter_map(|chunk| match chunk {
        Chunk::TextDelta { text, .. } => Some(text.as_str()),
        _ => None,
    });
    deltas.collect()
}
