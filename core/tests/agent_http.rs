//! An agent on the chat-completions wire: what the server does, and what the log says of it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;
use turnwheel::llm::adapters::OpenAiChat;
use turnwheel::session::TurnEndReason;
use turnwheel::{Agent, CancelCause, Context, EventData};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// A server that answers one request after the other with these bodies; after the last one it keeps the socket open
/// until the peer closes it.
fn serve(bodies: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let last = bodies.len() - 1;
        for (i, body) in bodies.into_iter().enumerate() {
            let Ok((mut socket, _)) = listener.accept() else { return };
            let mut buffer = vec![0; 65_536];
            let mut read = 0;
            while !buffer[..read].windows(4).any(|window| window == b"\r\n\r\n") {
                read += socket.read(&mut buffer[read..]).unwrap_or(0);
            }
            let _ = socket.write_all(HEAD.as_bytes()).and_then(|()| socket.write_all(body.as_bytes()));
            if i == last {
                while socket.read(&mut buffer).is_ok_and(|count| count > 0) {}
            }
        }
    });
    format!("http://{address}/v1")
}

fn open(url: &str) -> (Context, Agent) {
    let ctx = Context::new();
    ctx.llm().register("local", OpenAiChat::builder(url).build().expect("an adapter")).expect("a new route");
    let agent = ctx.runtime().block_on(ctx.agent("a").provider("local").model("m").open()).expect("opened");
    (ctx, agent)
}

fn delta(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

#[test]
fn a_model_that_answers_rubbish_fails_its_turn_by_name_and_the_next_turn_works() {
    let good = format!(
        "{}data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\ndata: [DONE]\n\n",
        delta("fine")
    );
    let (ctx, agent) = open(&serve(vec!["data: {rubbish\n\n".into(), good]));
    let bad = ctx.runtime().block_on(agent.run("one").expect("accepted")).expect("ran");
    let TurnEndReason::Error(failure) = bad.reason else { panic!("{:?}", bad.reason) };
    assert_eq!(failure.code, "MALFORMED_RESPONSE");
    assert!(failure.message.contains("{rubbish"), "the payload is quoted: {}", failure.message);
    let good = ctx.runtime().block_on(agent.run("two").expect("accepted")).expect("ran");
    assert_eq!((good.text.as_str(), good.reason), ("fine", TurnEndReason::Completed));
    let history: Vec<_> = agent.session().history().iter().map(|message| message.text()).collect();
    assert_eq!(history, ["one", "two", "fine"], "nothing of the failed answer reaches the model");
}

#[test]
fn case_011_a_cut_answer_is_no_answer() {
    let (ctx, agent) = open(&serve(vec![delta("half"), delta("unused")]));
    let result = ctx.runtime().block_on(agent.run("one").expect("accepted")).expect("ran");
    let TurnEndReason::Error(failure) = result.reason else { panic!("{:?}", result.reason) };
    assert_eq!(failure.code, "STREAM_CLOSED");
    assert_eq!(result.text, "");
}

#[test]
fn case_023_cancel_ends_a_silent_stream_at_once_and_keeps_what_was_said() {
    let (ctx, agent) = open(&serve(vec![delta("so far")]));
    let receipt = agent.followup("one").expect("accepted");
    let reason = ctx.runtime().block_on(async {
        let mut seen = 0;
        while !agent.session().events_from(seen).iter().any(|event| event.json().contains("so far")) {
            seen = agent.session().len();
            std::future::poll_fn(|context| agent.session().poll_event(seen, context)).await;
            seen -= 1;
        }
        let cancelled = std::time::Instant::now();
        agent.cancel(CancelCause::User);
        agent.when_idle().await.expect("idle");
        assert!(cancelled.elapsed() < Duration::from_secs(1), "{:?}", cancelled.elapsed());
        receipt.settled().await.expect("settled")
    });
    assert!(format!("{reason:?}").contains("Aborted(User)"), "{reason:?}");
    let events = agent.session().events_from(0);
    let prefix = events.iter().find_map(|event| match &event.data {
        EventData::AssistantMessage { message, interrupted: true, .. } => Some(message.text()),
        _ => None,
    });
    assert_eq!(prefix.as_deref(), Some("so far"));
}
