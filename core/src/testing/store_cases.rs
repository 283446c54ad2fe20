//! The cases of the store suite. A case fails with a sentence that says what was found.

use crate::error::{Code, Result};
use crate::id::SessionId;
use crate::json;
use crate::runtime::LocalBoxFuture;
use crate::session::{Event, SessionHeader};
use crate::storage::{SessionWriter, Store, copy_session};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// Nothing, or what was found instead.
type Found = Result<(), String>;

/// Opens the store under test.
pub(super) type OpenStore = Rc<dyn Fn() -> Result<Rc<dyn Store>>>;

/// A case.
pub(super) type Case = fn(Bench) -> LocalBoxFuture<Found>;

macro_rules! cases {
    ($($name:ident,)*) => {
        /// Every case with its name.
        pub(super) const CASES: &[(&str, Case)] = &[$((stringify!($name), |bench| Box::pin($name(bench))),)*];
    };
}

cases! {
    nothing_is_stored_before_the_first_batch,
    what_was_written_is_read_back_to_the_byte,
    a_new_store_object_sees_what_was_written,
    an_opened_session_goes_on_where_it_ended,
    a_batch_must_follow_the_log,
    a_refused_batch_leaves_nothing_behind,
    an_empty_batch_does_nothing,
    an_id_is_created_once,
    a_session_has_one_writer,
    a_closed_writer_frees_its_session,
    a_dropped_writer_frees_its_session,
    a_closed_writer_takes_nothing,
    an_unknown_session_is_none,
    a_listing_has_every_header,
    a_listing_is_paged_in_the_order_of_ids,
    sessions_are_written_side_by_side,
    a_given_up_append_is_whole_or_absent,
    a_given_up_opening_holds_nothing,
    unknown_events_are_kept,
    odd_texts_and_ids_are_kept,
    chunk_runs_are_read_back_one_by_one,
    large_events_and_batches_are_kept,
    a_session_is_copied_whole_and_never_over_another,
}

/// The store under test, and ids that nobody else uses.
pub(super) struct Bench {
    open: OpenStore,
    run: String,
    next: Cell<u64>,
}

impl Bench {
    pub(super) fn new(open: OpenStore) -> Self {
        let run = uuid::Uuid::new_v4().simple().to_string();
        Self { open, run: run[..12].to_owned(), next: Cell::new(0) }
    }

    fn store(&self) -> Result<Rc<dyn Store>, String> {
        done("opening the store", (self.open)())
    }

    fn id(&self) -> SessionId {
        self.next.set(self.next.get() + 1);
        format!("suite-{}-{:03}", self.run, self.next.get()).into()
    }

    fn header(&self) -> SessionHeader {
        let mut header = SessionHeader::new(self.id(), 1_700_000_000_123);
        header.cwd = Some("/home/suite/work".into());
        header.delegation_depth = Some(0);
        header
    }

    /// A stored session, closed.
    async fn stored(&self, store: &Rc<dyn Store>, events: &[Arc<Event>]) -> Result<SessionHeader, String> {
        let header = self.header();
        let writer = done("create", store.create(&header).await)?;
        done("append", writer.append(events.to_vec()).await)?;
        writer.close().await;
        Ok(header)
    }
}

fn event(text: &str) -> Arc<Event> {
    let value = json::parse(text).expect("the suite's events are JSON");
    Arc::new(Event::from_value(&value).expect("the suite's events are valid"))
}

/// Whole turns, three events each, from turn `first` on.
fn turns(first: u64, count: u64) -> Vec<Arc<Event>> {
    (first..first + count)
        .flat_map(|turn| {
            let seq = (turn - 1) * 3;
            let (second, third) = (seq + 1, seq + 2);
            [
                format!(r#"{{"type":"turn/start","seq":{seq},"time":1700000000000,"data":{{"turn":{turn}}}}}"#),
                format!(r#"{{"type":"plan/mode","seq":{second},"time":1700000000001,"data":{{"active":true}}}}"#),
                format!(
                    r#"{{"type":"turn/end","seq":{third},"time":1700000000000,"data":{{"turn":{turn},"reason":{{"kind":"completed"}}}}}}"#
                ),
            ]
        })
        .map(|text| event(&text))
        .collect()
}

fn done<T>(what: &str, result: Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{what} failed with {error:?}"))
}

fn refused<T>(what: &str, code: Code, result: Result<T>) -> Found {
    match result {
        Err(error) if *error.code() == code => Ok(()),
        Err(error) => Err(format!("{what} failed with {error:?}, and not with {}", code.as_str())),
        Ok(_) => Err(format!("{what} succeeded; it should fail with {}", code.as_str())),
    }
}

fn ensure(holds: bool, found: impl Into<String>) -> Found {
    if holds { Ok(()) } else { Err(found.into()) }
}

fn same(events: &[Arc<Event>], expected: &[Arc<Event>]) -> Found {
    if let Some((stored, event)) = events.iter().zip(expected).find(|(a, b)| a.json() != b.json()) {
        return Err(format!("event {} came back as {}, and was {}", event.seq, shortened(stored), shortened(event)));
    }
    ensure(events.len() == expected.len(), format!("{} events came back of {}", events.len(), expected.len()))
}

fn shortened(event: &Event) -> String {
    event.json().chars().take(300).collect()
}

/// What the store has under the id.
async fn stored_is(store: &Rc<dyn Store>, header: &SessionHeader, expected: &[Arc<Event>]) -> Found {
    let Some(log) = done("read", store.read(&header.id).await)? else {
        return Err("read found no session".into());
    };
    ensure(log.header == *header, format!("the header came back as {:?}, and was {header:?}", log.header))?;
    same(&log.events.to_vec(), expected)
}

async fn opened(store: &Rc<dyn Store>, id: &SessionId) -> Result<(Vec<Arc<Event>>, Rc<dyn SessionWriter>), String> {
    match done("open", store.open(id).await)? {
        Some((log, writer)) => Ok((log.events.into(), writer)),
        None => Err("open found no session".into()),
    }
}

/// Starts a future, lets it get as far as it gets at once, and drops it.
async fn give_up<T>(future: LocalBoxFuture<T>) -> bool {
    let mut future = Some(future);
    std::future::poll_fn(move |context| {
        let ready = future.as_mut().is_some_and(|future| future.as_mut().poll(context).is_ready());
        future = None;
        Poll::Ready(ready)
    })
    .await
}

async fn nothing_is_stored_before_the_first_batch(bench: Bench) -> Found {
    let (store, header) = (bench.store()?, bench.header());
    let writer = done("create", store.create(&header).await)?;
    ensure(!done("exists", store.exists(&header.id).await)?, "exists is true before anything was appended")?;
    ensure(done("read", store.read(&header.id).await)?.is_none(), "read finds a session without events")?;
    ensure(done("open", store.open(&header.id).await)?.is_none(), "open finds a session without events")?;
    let listed = done("list", store.list().await)?;
    ensure(listed.iter().all(|other| other.id != header.id), "a session without events is listed")?;
    writer.close().await;
    ensure(!done("exists", store.exists(&header.id).await)?, "closing a writer stored a session without events")
}

async fn what_was_written_is_read_back_to_the_byte(bench: Bench) -> Found {
    let store = bench.store()?;
    let mut header = bench.header();
    header.parent_session = Some("the parent".into());
    header.seed_length = Some(3);
    header.origin = Some("subagent".into());
    header.delegation_depth = Some(2);
    header.agent_preset = Some("preset \u{1f980}".into());
    let writer = done("create", store.create(&header).await)?;
    let events = turns(1, 3);
    for batch in [&events[..1], &events[1..5], &events[5..]] {
        done("append", writer.append(batch.to_vec()).await)?;
    }
    stored_is(&store, &header, &events).await?;
    ensure(done("exists", store.exists(&header.id).await)?, "exists is false for a stored session")?;
    writer.close().await;
    stored_is(&store, &header, &events).await
}

async fn a_new_store_object_sees_what_was_written(bench: Bench) -> Found {
    let header = bench.stored(&bench.store()?, &turns(1, 2)).await?;
    stored_is(&bench.store()?, &header, &turns(1, 2)).await
}

async fn an_opened_session_goes_on_where_it_ended(bench: Bench) -> Found {
    let header = bench.stored(&bench.store()?, &turns(1, 1)).await?;
    for turn in 2..5 {
        let store = bench.store()?;
        let (events, writer) = opened(&store, &header.id).await?;
        same(&events, &turns(1, turn - 1))?;
        done("append", writer.append(turns(turn, 1)).await)?;
        writer.close().await;
    }
    stored_is(&bench.store()?, &header, &turns(1, 4)).await
}

async fn a_batch_must_follow_the_log(bench: Bench) -> Found {
    let (store, header, events) = (bench.store()?, bench.header(), turns(1, 3));
    let writer = done("create", store.create(&header).await)?;
    refused("a first batch from seq 1 on", Code::StoreConflict, writer.append(events[1..3].to_vec()).await)?;
    done("append", writer.append(events[..3].to_vec()).await)?;
    refused("a batch that is stored already", Code::StoreConflict, writer.append(events[..3].to_vec()).await)?;
    refused("a batch that overlaps", Code::StoreConflict, writer.append(events[2..5].to_vec()).await)?;
    refused("a batch behind a gap", Code::StoreConflict, writer.append(events[4..6].to_vec()).await)?;
    done("the right batch after refused ones", writer.append(events[3..].to_vec()).await)?;
    writer.close().await;
    stored_is(&store, &header, &events).await
}

async fn a_refused_batch_leaves_nothing_behind(bench: Bench) -> Found {
    let (store, header, events) = (bench.store()?, bench.header(), turns(1, 3));
    let writer = done("create", store.create(&header).await)?;
    done("append", writer.append(events[..3].to_vec()).await)?;
    let gap = vec![events[3].clone(), events[4].clone(), events[6].clone()];
    refused("a batch with a gap inside", Code::StoreConflict, writer.append(gap).await)?;
    stored_is(&store, &header, &events[..3]).await?;
    writer.close().await;
    stored_is(&bench.store()?, &header, &events[..3]).await
}

async fn an_empty_batch_does_nothing(bench: Bench) -> Found {
    let (store, header) = (bench.store()?, bench.header());
    let writer = done("create", store.create(&header).await)?;
    done("an empty first batch", writer.append(Vec::new()).await)?;
    ensure(!done("exists", store.exists(&header.id).await)?, "an empty batch stored a session")?;
    done("append", writer.append(turns(1, 1)).await)?;
    done("an empty batch", writer.append(Vec::new()).await)?;
    writer.close().await;
    stored_is(&store, &header, &turns(1, 1)).await
}

async fn an_id_is_created_once(bench: Bench) -> Found {
    let (store, header) = (bench.store()?, bench.header());
    let first = done("create", store.create(&header).await)?;
    let again = store.create(&header).await;
    refused("creating an id that has a writer", Code::SessionAlreadyExists, again)?;
    done("append", first.append(turns(1, 1)).await)?;
    let again = store.create(&header).await;
    refused("creating a stored id that has a writer", Code::SessionAlreadyExists, again)?;
    first.close().await;
    let mut other = header.clone();
    other.cwd = None;
    let again = bench.store()?.create(&other).await;
    refused("creating a stored id through another store object", Code::SessionAlreadyExists, again)?;
    stored_is(&store, &header, &turns(1, 1)).await?;
    let free = bench.header();
    let writer = done("create", store.create(&free).await)?;
    writer.close().await;
    let writer = done("creating an id that was given up unused", store.create(&free).await)?;
    writer.close().await;
    Ok(())
}

async fn a_session_has_one_writer(bench: Bench) -> Found {
    let (store, other, header) = (bench.store()?, bench.store()?, bench.header());
    let writer = done("create", store.create(&header).await)?;
    done("append", writer.append(turns(1, 1)).await)?;
    refused("opening what its creator writes", Code::SessionLocked, store.open(&header.id).await)?;
    let error = other.open(&header.id).await;
    refused("opening it through another store object", Code::SessionLocked, error)?;
    stored_is(&other, &header, &turns(1, 1)).await.map_err(|found| format!("reading needs no lock, but {found}"))?;
    writer.close().await;
    let (_, writer) = opened(&store, &header.id).await?;
    let error = other.open(&header.id).await;
    refused("opening what another store object has opened", Code::SessionLocked, error)?;
    done("append", writer.append(turns(2, 1)).await)?;
    writer.close().await;
    Ok(())
}

async fn a_closed_writer_frees_its_session(bench: Bench) -> Found {
    let header = bench.stored(&bench.store()?, &turns(1, 1)).await?;
    let (_, writer) = opened(&bench.store()?, &header.id).await?;
    writer.close().await;
    writer.close().await;
    let (_, writer) = opened(&bench.store()?, &header.id).await?;
    writer.close().await;
    Ok(())
}

async fn a_dropped_writer_frees_its_session(bench: Bench) -> Found {
    let store = bench.store()?;
    let header = bench.stored(&store, &turns(1, 1)).await?;
    let (_, writer) = opened(&store, &header.id).await?;
    drop(writer);
    let (_, writer) = opened(&store, &header.id).await?;
    writer.close().await;
    Ok(())
}

async fn a_closed_writer_takes_nothing(bench: Bench) -> Found {
    let (store, header) = (bench.store()?, bench.header());
    let writer = done("create", store.create(&header).await)?;
    done("append", writer.append(turns(1, 1)).await)?;
    writer.close().await;
    let (_, second) = opened(&store, &header.id).await?;
    let late = writer.append(turns(2, 1)).await;
    ensure(late.is_err(), "a closed writer appended to a session that has another writer")?;
    done("append", second.append(turns(2, 1)).await)?;
    second.close().await;
    stored_is(&store, &header, &turns(1, 2)).await
}

async fn an_unknown_session_is_none(bench: Bench) -> Found {
    let (store, id) = (bench.store()?, bench.id());
    ensure(!done("exists", store.exists(&id).await)?, "exists is true for an unknown session")?;
    ensure(done("read", store.read(&id).await)?.is_none(), "read finds an unknown session")?;
    ensure(done("open", store.open(&id).await)?.is_none(), "open finds an unknown session")
}

async fn a_listing_has_every_header(bench: Bench) -> Found {
    let store = bench.store()?;
    let mut written = Vec::new();
    for _ in 0..3 {
        written.push(bench.stored(&store, &turns(1, 1)).await?);
    }
    let listed = done("list", bench.store()?.list().await)?;
    for header in &written {
        let times = listed.iter().filter(|other| *other == header).count();
        ensure(times == 1, format!("session {:?} is listed {times} times", header.id))?;
    }
    Ok(())
}

async fn a_listing_is_paged_in_the_order_of_ids(bench: Bench) -> Found {
    let store = bench.store()?;
    let mut expected = Vec::new();
    for _ in 0..5 {
        expected.push(bench.stored(&store, &turns(1, 1)).await?.id);
    }
    let (mut seen, mut after): (Vec<SessionId>, Option<SessionId>) = (Vec::new(), None);
    loop {
        let page = done("list_page", store.list_page(after.as_ref(), 2).await)?;
        ensure(page.len() <= 2, format!("a page of 2 has {} headers", page.len()))?;
        let Some(last) = page.last() else { break };
        let is_behind = after.as_ref().is_none_or(|after| page.iter().all(|header| header.id > *after));
        ensure(is_behind, "a page does not begin behind the id it was asked to follow")?;
        after = Some(last.id.clone());
        seen.extend(page.into_iter().map(|header| header.id));
    }
    ensure(seen.is_sorted(), "the pages are not in the order of their ids")?;
    seen.retain(|id| expected.contains(id));
    ensure(seen == expected, format!("the pages have {seen:?} of {expected:?}"))
}

async fn sessions_are_written_side_by_side(bench: Bench) -> Found {
    let store = bench.store()?;
    let mut sessions = Vec::new();
    for _ in 0..16 {
        let header = bench.header();
        sessions.push((done("create", store.create(&header).await)?, header));
    }
    for turn in 1..=5 {
        let appends = sessions.iter().map(|(writer, _)| writer.append(turns(turn, 1)));
        let mut waiting: Vec<_> = appends.collect();
        let mut results = Vec::new();
        std::future::poll_fn(|context| {
            waiting.retain_mut(|append| match append.as_mut().poll(context) {
                Poll::Ready(result) => {
                    results.push(result);
                    false
                }
                Poll::Pending => true,
            });
            if waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        results.into_iter().try_for_each(|result| done("append", result))?;
    }
    for (writer, header) in sessions {
        writer.close().await;
        stored_is(&store, &header, &turns(1, 5)).await?;
    }
    Ok(())
}

async fn a_given_up_append_is_whole_or_absent(bench: Bench) -> Found {
    let (store, header, events) = (bench.store()?, bench.header(), turns(1, 20));
    let writer = done("create", store.create(&header).await)?;
    give_up(writer.append(events[..6].to_vec())).await;
    writer.close().await;
    let first = done("read", store.read(&header.id).await)?.map_or(0, |log| log.events.len());
    ensure(first == 0 || first == 6, format!("{first} of 6 events of a session's first batch are stored"))?;
    let header = bench.stored(&store, &events[..6]).await?;
    let (_, writer) = opened(&store, &header.id).await?;
    give_up(writer.append(events[6..].to_vec())).await;
    writer.close().await;
    let (stored, writer) = opened(&bench.store()?, &header.id).await?;
    ensure(stored.len() >= 6, format!("{} of 6 acknowledged events are left", stored.len()))?;
    same(&stored, &events[..stored.len().min(events.len())])?;
    done("append after it", writer.append(events[stored.len()..].to_vec()).await)?;
    writer.close().await;
    stored_is(&store, &header, &events).await
}

async fn a_given_up_opening_holds_nothing(bench: Bench) -> Found {
    let store = bench.store()?;
    let header = bench.stored(&store, &turns(1, 1)).await?;
    give_up(store.open(&header.id)).await;
    // What was given up may still be on its way; it ends by itself.
    for _ in 0..10_000 {
        match store.open(&header.id).await {
            Ok(Some((_, writer))) => {
                writer.close().await;
                return Ok(());
            }
            Err(error) if *error.code() == Code::SessionLocked => drop(store.exists(&header.id).await),
            other => return done("open", other.map(drop)),
        }
    }
    Err("an opening that was given up holds the session for good".into())
}

async fn unknown_events_are_kept(bench: Bench) -> Found {
    let store = bench.store()?;
    let events = [
        event(r#"{"type":"suite/unknown","seq":0,"time":1,"data":{"any":[1,{"deep":null}]},"ignorable":true}"#),
        // The keys are in another order than ours and there are more of them.
        event(r#"{"seq":1,"type":"turn/start","data":{"turn":1},"time":1700000000000}"#),
        event(r#"{"type":"plan/mode","seq":2,"time":-5,"data":{"z":1,"active":false,"a":{"10":1,"9":2}}}"#),
        event(r#"{"type":"suite/unknown","seq":3,"time":1.0,"data":"text","ignorable":true}"#),
    ];
    let header = bench.stored(&store, &events).await?;
    stored_is(&store, &header, &events).await
}

async fn odd_texts_and_ids_are_kept(bench: Bench) -> Found {
    let store = bench.store()?;
    let mut header = bench.header();
    header.id = format!("{} \u{e9} /..\\\u{1f980} 'x' %s", header.id).into();
    header.cwd = Some("/home/\u{fc}ml aut/'; DROP TABLE sessions --".into());
    let text = r"nul \u0000 quote \u0022 \\ line \n del \u007f \u2028 \ud83e\udd80";
    let events = [event(&format!(r#"{{"type":"feedback/record","seq":0,"time":1,"data":{{"a\u0000b":"{text}"}}}}"#))];
    let writer = done("create", store.create(&header).await)?;
    done("append", writer.append(events.to_vec()).await)?;
    writer.close().await;
    stored_is(&bench.store()?, &header, &events).await?;
    let listed = done("list", store.list().await)?;
    ensure(listed.contains(&header), "the session is not listed")
}

async fn chunk_runs_are_read_back_one_by_one(bench: Bench) -> Found {
    let store = bench.store()?;
    let chunk = |seq: u64, index: u64, rest: &str| {
        let time = 1_700_000_000_000 + seq % 7;
        event(&format!(
            r#"{{"type":"assistant/chunk","seq":{seq},"time":{time},"data":{{"turn":1,"step":1,"chunk":{{"type":"text-delta","index":{index},"text":"t{seq}"}}}}{rest}}}"#
        ))
    };
    let mut events: Vec<_> = (0..3000).map(|seq| chunk(seq, seq / 1000, "")).collect();
    events.push(chunk(3000, 2, r#","ignorable":true"#));
    events.push(chunk(3001, 2, ""));
    let header = bench.stored(&store, &events).await?;
    stored_is(&store, &header, &events).await
}

async fn large_events_and_batches_are_kept(bench: Bench) -> Found {
    let store = bench.store()?;
    let mut text = String::with_capacity(1 << 20);
    for number in 0..150_000_u64 {
        text.push_str(&(number.wrapping_mul(2_654_435_761) % 9973).to_string());
        text.push(' ');
    }
    let mut events = turns(1, 1000);
    let seq = events.len();
    events.push(event(&format!(r#"{{"type":"feedback/record","seq":{seq},"time":1,"data":{{"text":"{text}"}}}}"#)));
    let header = bench.stored(&store, &events).await?;
    stored_is(&bench.store()?, &header, &events).await
}

async fn a_session_is_copied_whole_and_never_over_another(bench: Bench) -> Found {
    let (store, source) = (bench.store()?, bench.store()?);
    let header = bench.stored(&source, &turns(1, 2)).await?;
    refused(
        "copying over a stored session",
        Code::SessionAlreadyExists,
        copy_session(&*source, &*store, &header.id).await,
    )?;
    refused("copying an unknown session", Code::SessionNotFound, copy_session(&*source, &*store, &bench.id()).await)?;
    stored_is(&store, &header, &turns(1, 2)).await
}
