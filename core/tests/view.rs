//! The timeline of a session as text and as a page, of ordinary, broken and hostile logs.

use std::sync::Arc;
use turnwheel::json;
use turnwheel::json::Value;
use turnwheel::session::{Event, SessionHeader};
use turnwheel::storage::jsonl::read_log;
use turnwheel::view::{HtmlOptions, Price, TextOptions, TextView, render_html, render_text};

/// What a hostile model, tool or user would put anywhere.
const HOSTILE: &str = "</pre></script></title><script>window.pwned=1</script><img src=x onerror='window.pwned=2'>\
    <a href=\"javascript:window.pwned=3\">x</a>\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\r\u{202e}gnp.exe\u{2066}\u{0}&amp;";

fn log(items: Vec<Value>) -> Vec<Arc<Event>> {
    let events = items.into_iter().enumerate().map(|(seq, mut item)| {
        if let Value::Object(object) = &mut item {
            object.insert("seq", seq);
            object.insert("time", 1_767_225_674_000_i64 + seq as i64 * 100);
        }
        Arc::new(Event::from_value(&item).expect("a valid event"))
    });
    events.collect()
}

fn user(text: &str) -> Value {
    json!({"type": "user/message", "surfaceOp": "append", "data": {"id": "u", "role": "user",
        "content": [{"type": "text", "text": text}], "source": {"kind": "user"}}})
}

fn answer(blocks: Value, usage: Value) -> Value {
    json!({"type": "assistant/message", "surfaceOp": "append", "data": {"turn": 1, "step": 1, "usage": usage,
        "message": {"id": "a", "role": "assistant", "content": blocks,
            "source": {"kind": "model", "provider": "p", "model": "m"}}}})
}

fn result(text: &str, failed: bool) -> Value {
    json!({"type": "tool/result", "surfaceOp": "append", "data": {"turn": 1, "step": 1, "meta": {"note": text},
        "message": {"id": "r", "role": "user", "source": {"kind": "tool", "callId": "c1"}, "content": [
            {"type": "tool-result", "toolCallId": "c1", "isError": failed, "content": [{"type": "text", "text": text}]}]}}})
}

/// A turn in which `text` stands wherever a log can hold text.
fn everywhere(text: &str) -> (SessionHeader, Vec<Arc<Event>>) {
    let mut header = SessionHeader::new(text, 1_767_225_674_000);
    header.cwd = Some(format!("/{text}"));
    header.agent_preset = Some(text.to_owned());
    let tool = json!({"name": text, "description": text, "parameters": {"type": "object", "title": text}});
    let call = json!({"type": "tool-call", "id": "c1", "name": text, "arguments": text});
    let said = json!({"type": "text", "text": text});
    let thought = json!({"type": "reasoning", "text": text});
    let odd = json!({"type": text, "payload": {"key": text}});
    let failure = json!({"message": text, "code": text});
    let mut config = json!({"provider": text, "model": text});
    if let Value::Object(config) = &mut config {
        config.insert("stop", vec![Value::from(text)]);
    }
    let inserted = json!({"id": "q", "role": "user", "content": [said], "source": {"kind": "user"}});
    let source = json!({"kind": "plugin", "plugin": text});
    let context = json!({"id": "x", "role": "user", "content": [said], "source": source});
    let events = vec![
        json!({"type": "session/title", "data": {"title": text}}),
        json!({"type": "agent/inbox/spliced", "data": {"target": "next-turn", "start": 0, "inserted": [inserted]}}),
        json!({"type": "turn/start", "data": {"turn": 1}}),
        json!({"type": "step/start", "data": {"turn": 1, "step": 1}}),
        user(text),
        json!({"type": "user/message", "surfaceOp": "append", "data": context}),
        json!({"type": "request/header", "data": {"reason": "initial",
            "header": {"config": config, "system": text, "tools": [tool]}}}),
        json!({"type": "assistant/chunk", "data": {"turn": 1, "step": 1,
            "chunk": {"type": "text-delta", "index": 0, "text": text}}}),
        json!({"type": "llm/retry", "data": {"provider": text, "retry": 1, "delayMs": 20, "failure": failure}}),
        answer(json!([thought, said, call, odd]), json!({"inputTokens": 700, "outputTokens": 300})),
        json!({"type": "tool/call", "data": {"turn": 1, "step": 1, "callId": "c1", "name": text, "arguments": text}}),
        result(text, true),
        json!({"type": "approval/asked", "data": {"toolName": text}}),
        json!({"type": "shop/sale", "ignorable": true, "data": {"name": text}}),
        json!({"type": "step/end", "data": {"turn": 1, "step": 1}}),
        json!({"type": "turn/end", "data": {"turn": 1, "reason": {"kind": "error", "error": failure}}}),
    ];
    (header, log(events))
}

fn page(header: &SessionHeader, events: &[Arc<Event>], options: &HtmlOptions) -> String {
    let mut out = Vec::new();
    render_html(header, events, options, &mut out, &mut |_, _| {}).expect("memory takes all");
    String::from_utf8(out).expect("a page is UTF-8")
}

fn text(header: &SessionHeader, events: &[Arc<Event>], options: TextOptions) -> String {
    let mut out = Vec::new();
    render_text(header, events, options, &mut out, &mut |_, _| {}).expect("memory takes all");
    String::from_utf8(out).expect("text is UTF-8")
}

fn sample(name: &str) -> (SessionHeader, Vec<Arc<Event>>) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/samples").join(name);
    let log = read_log(&path).expect("a sample can be read");
    (log.header, log.events.into())
}

#[test]
fn a_page_has_only_its_own_elements_whatever_a_log_says() {
    let (header, events) = everywhere(HOSTILE);
    let (plain_header, plain_events) = everywhere("plain");
    let page_of_hostile = page(&header, &events, &HtmlOptions::default());
    let page_of_plain = page(&plain_header, &plain_events, &HtmlOptions::default());
    // Everything hostile is text: the same tags stand in the same order as in the page of a harmless log. The marks of
    // hidden characters are the only elements that a text brings along, and they hold no text of the log.
    let marks = |page: &str| {
        let mut out = String::new();
        let mut rest = page;
        while let Some(at) = rest.find("<span class=\"hidden\">") {
            out.push_str(&rest[..at]);
            let end = rest[at..].find("</span>").expect("a mark is closed") + at + "</span>".len();
            assert!(!rest[at + 1..end - 7].contains('<'));
            rest = &rest[end..];
        }
        out + rest
    };
    let tags = |page: &str| -> Vec<String> {
        let pieces = page.split('<').skip(1);
        pieces.map(|piece| piece.split('>').next().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(tags(&marks(&page_of_hostile)), tags(&page_of_plain));
    assert!(!page_of_hostile.contains("<script") && !page_of_hostile.contains("<img"));
    assert!(page_of_hostile.contains("&lt;script&gt;window.pwned=1&lt;/script&gt;"));
    for hidden in ['\u{1b}', '\u{7}', '\u{9b}', '\r', '\u{202e}', '\u{2066}', '\u{0}'] {
        assert!(!page_of_hostile.contains(hidden), "U+{:04X} is in the page", hidden as u32);
    }
}

#[test]
fn the_policy_of_a_page_allows_its_style_and_nothing_else() {
    let (header, events) = sample("01-plain-text.jsonl");
    let page = page(&header, &events, &HtmlOptions::default());
    let style = page.split("<style>").nth(1).and_then(|rest| rest.split("</style>").next()).expect("a style sheet");
    let digest = ring::digest::digest(&ring::digest::SHA256, style.as_bytes());
    let hash = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, digest.as_ref());
    let policy =
        format!("content=\"default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'\"");
    assert!(page.contains(&policy), "page.css changed: set STYLE_HASH in core/src/view/html.rs to {hash}");
    assert!(!page.contains(" style=") && !page.contains("http:") && !page.contains("https:"));
    assert!(page.find("Content-Security-Policy") < page.find("<style>"));
}

#[test]
fn a_terminal_obeys_nothing_that_a_log_says() {
    let (header, events) = everywhere(HOSTILE);
    for full in [false, true] {
        let out = text(&header, &events, TextOptions { full, ..TextOptions::default() });
        let odd = out.chars().find(|c| c.is_control() && *c != '\n' || ('\u{202a}'..='\u{2069}').contains(c));
        assert_eq!(odd, None, "{out}");
        assert!(out.contains("␛[2J") && out.contains("⟨U+202E⟩gnp.exe"));
    }
    let colored = text(&header, &events, TextOptions { color: true, ..TextOptions::default() });
    let escapes = colored.matches('\u{1b}').count();
    let ours =
        ["1;36", "32", "33", "34", "31", "2", "0"].map(|code| colored.matches(&format!("\u{1b}[{code}m")).count());
    assert_eq!(escapes, ours.iter().sum::<usize>(), "every escape is a colour of ours");
}

#[test]
fn a_timeline_tells_turns_steps_tools_retries_and_how_they_ended() {
    let (header, events) = sample("04-retry-and-error.jsonl");
    let out = text(&header, &events, TextOptions::default());
    for line in [
        "session demo-retry  2026-01-01 00:01:14.002 UTC",
        "turn 1  2026-01-01 00:01:14.008 UTC",
        "Hello?",
        "answer cut off before it became a message",
        "partial",
        "demo failed (SERVER): retry 1 of 2 in",
        "upstream overloaded",
        "demo/demo-chat answered after 48 ms, first token after 36 ms  5 tokens in, 2 out",
        "Recovered.",
        "turn 1 completed after 60 ms  (1 step, 1 retry)",
        "turn 2 failed: bad key (AUTH) after",
        "2 turns, 2 steps, 1 retry; 5 tokens in, 2 out",
    ] {
        assert!(out.contains(line), "{line:?} is missing in\n{out}");
    }
    let (header, events) = sample("02-tool-turn.jsonl");
    let page = page(&header, &events, &HtmlOptions::default());
    assert!(page.contains("<details><summary>arguments (") && page.contains("<details><summary>request ("));
    assert!(page.contains("failed)") && page.contains("returned after"));
}

#[test]
fn results_fold_and_long_ones_are_folded() {
    let of = |text: &str| page(&SessionHeader::new("s", 0), &log(vec![result(text, false)]), &HtmlOptions::default());
    assert!(of("42").contains("<details open><summary>result (2 characters)</summary><pre>42</pre></details>"));
    for long in ["line\n".repeat(21), "x".repeat(2001)] {
        let page = of(&long);
        assert!(page.contains("<details><summary>result (") && !page.contains("<details open>"));
        assert!(page.contains(&long), "folded, and whole");
    }
}

#[test]
fn what_a_crash_cut_and_what_was_cancelled_is_said() {
    let chunk = json!({"type": "text-delta", "index": 0, "text": "half a sen"});
    let started = vec![
        json!({"type": "turn/start", "data": {"turn": 1}}),
        json!({"type": "step/start", "data": {"turn": 1, "step": 1}}),
        user("go"),
        json!({"type": "assistant/chunk", "data": {"turn": 1, "step": 1, "chunk": chunk}}),
    ];
    let header = SessionHeader::new("s", 0);
    let out = text(&header, &log(started.clone()), TextOptions::default());
    assert!(out.contains("half a sen") && out.contains("the log ends inside a turn"));
    assert!(page(&header, &log(started.clone()), &HtmlOptions::default()).contains("half a sen"));
    let ends = [
        (json!({"kind": "interrupted"}), "was cut by a crash and closed by repair, after 500 ms"),
        (json!({"kind": "aborted", "reason": {"kind": "user"}}), "was cancelled (user) after 500 ms"),
    ];
    for (reason, said) in ends {
        let mut items = started.clone();
        items.push(json!({"type": "step/end", "data": {"turn": 1, "step": 1}}));
        items.push(json!({"type": "turn/end", "data": {"turn": 1, "reason": reason}}));
        let out = text(&header, &log(items), TextOptions::default());
        assert!(out.contains(said), "{out}");
        assert_eq!(out.matches("half a sen").count(), 1);
    }
}

#[test]
fn tokens_are_bars_and_money_where_there_is_a_price() {
    let (header, events) = everywhere("plain");
    let mut options = HtmlOptions::default();
    options.prices.insert("p/m".to_owned(), Price { input: 1000.0, output: 2000.0, ..Price::default() });
    let page = page(&header, &events, &options);
    // 700 in and 300 out, of the 1000 that the greatest turn took; 0.7 + 0.6 of money.
    assert!(page.contains("<rect class=\"in\" x=\"0.00\" y=\"0\" width=\"700.00\" height=\"8\"/>"), "{page}");
    assert!(page.contains("<rect class=\"out\" x=\"700.00\" y=\"0\" width=\"300.00\" height=\"8\"/>"));
    assert!(page.contains("<dt>cost</dt><dd>1.30</dd>"));
    let out = text(&header, &events, TextOptions { prices: options.prices, ..TextOptions::default() });
    assert!(out.ends_with("; cost 1.30\n"));
}

#[test]
fn a_timeline_that_grows_is_the_timeline_of_the_whole() {
    for name in ["01-plain-text", "02-tool-turn", "04-retry-and-error", "08-compaction-replace", "10-vocabulary"] {
        let (header, events) = sample(&format!("{name}.jsonl"));
        let mut view = TextView::new(TextOptions::default());
        let mut grown = view.header(&header);
        for event in &events {
            grown.push_str(&view.event(event));
        }
        grown.push('\n');
        grown.push_str(&view.end(events.last().map(|event| &**event)));
        assert_eq!(grown, text(&header, &events, TextOptions::default()), "{name}");
    }
}

#[test]
fn long_exports_tell_how_far_they_are_and_stop_when_nobody_takes_them() {
    let header = SessionHeader::new("s", 0);
    let events = log((0..1000).map(|_| user("again")).collect());
    let mut heard = Vec::new();
    let mut out = Vec::new();
    render_html(&header, &events, &HtmlOptions::default(), &mut out, &mut |done, all| heard.push((done, all)))
        .expect("memory takes all");
    assert_eq!(heard, [(0, 1000), (256, 1000), (512, 1000), (768, 1000), (1000, 1000)]);
    let mut small = [0_u8; 5000];
    let mut full = &mut small[..];
    let error = render_html(&header, &events, &HtmlOptions::default(), &mut full, &mut |_, _| {}).expect_err("no room");
    assert_eq!(error.kind(), std::io::ErrorKind::WriteZero);
}

#[test]
fn deeply_nested_data_is_shown_without_deep_recursion() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let data = turnwheel::json::parse(&deep).expect("any depth is JSON");
    let mut item = json!({"type": "shop/deep", "ignorable": true});
    if let Value::Object(object) = &mut item {
        object.insert("data", data);
    }
    let page = page(&SessionHeader::new("s", 0), &log(vec![item]), &HtmlOptions::default());
    assert!(page.contains("[[[["));
}

#[test]
fn str_6_an_answer_says_when_its_first_token_came() {
    let chunk = |chunk: Value| json!({"type": "assistant/chunk", "data": {"turn": 1, "step": 1, "chunk": chunk}});
    let delta = |text: &str| json!({"type": "text-delta", "index": 0, "text": text});
    // An event a tenth of a second: the start of the block and the empty delta are no tokens.
    let events = log(vec![
        json!({"type": "turn/start", "data": {"turn": 1}}),
        user("hi"),
        json!({"type": "step/start", "data": {"turn": 1, "step": 1}}),
        chunk(json!({"type": "block-start", "index": 0, "blockType": "text"})),
        chunk(delta("")),
        chunk(delta("hel")),
        chunk(delta("lo")),
        answer(json!([{"type": "text", "text": "hello"}]), json!({"inputTokens": 1, "outputTokens": 1})),
    ]);
    let shown = text(&SessionHeader::new("s", 1), &events, TextOptions::default());
    assert!(shown.contains("p/m answered after 500 ms, first token after 300 ms"), "{shown}");
    let shown = text(&SessionHeader::new("s", 1), &events[..2], TextOptions::default());
    assert!(!shown.contains("first token"), "{shown}");
}
