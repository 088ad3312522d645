//! Questions of an instance to the others about how they are. The `gv$` views, which show all
//! instances, are made of the answers. A question needs no lock and no block.
//!
//! Questions and answers are bytes here. Only the asker and the responder
//! ([`Inquiries::respond_with`]) know what they mean.
//!
//! ```text
//! session ── ASK id, page 0, question ──► receiving thread ──► queue ──► thread pz00: the
//!    ▲                                                          │        responder's answer
//!    └─ ANSWER id, page, pages, bytes ◄─────────────────────────┘
//! then ASK id, page 1 .. for the rest; END when all is there
//! ```
//!
//! **Invariants.**
//! - Receiving threads make no answers (R8): an answer is read under latches, and nobody knows how
//!   long making it takes.
//! - The asker fetches an answer page by page. So a slow reader delays nobody, and a page is small
//!   enough not to hold up the blocks that share its lane.
//! - Nobody waits for ever. If an instance says nothing for as long as the asker has patience, the
//!   result says that its answer is missing, with its name and the reason. Until it says something
//!   again, those who ask all wait for it [`OF_THE_SILENT`] at most: a page of twenty views about
//!   what is wrong must not wait twenty times for the instance that is wrong.
//! - Everything that can grow has a limit: questions waiting, an answer's bytes, answers kept for
//!   their further pages. Whatever exceeds a limit is answered with an error that says so.
//! - Messages may be lost with their connection, or come twice. The asker asks again for a page
//!   that was not answered. An answer that is made a second time has another number, and its reader
//!   begins again.

mod messages;

use crate::Result;
use crate::cluster::{Layer, Members, Worker};
use block::{BlockBuf, InstanceId};
use interconnect::{Parcel, Post, Route};
use messages::{Head, Page};
use seam::HashMap;
use seam::{Condvar, Mutex};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use wait::{Event, WaitResult, Waiter};
use wire::Bad;

/// Kinds of messages, within [`interconnect::kinds::ENGINE`].
pub(crate) const INQUIRY_KINDS: RangeInclusive<u16> = 240..=242;

/// Bytes of an answer in one message: four blocks.
const PAGE_BYTES: usize = 32 << 10;
/// Most bytes of an answer. The largest view is the ring of session history: 360,000 samples of
/// about 250 bytes, and their statements, cut to 1000.
const ANSWER_MAX_BYTES: usize = 512 << 20;
/// Most bytes of a question: the name of a view and the like.
const QUESTION_MAX_BYTES: usize = 4096;
/// Questions that may wait for `pz00`: far more than the sessions that look at such views at a
/// time.
const QUEUE_MAX: usize = 1024;
/// Bytes of all answers kept for their further pages. One answer is always kept.
const KEPT_MAX_BYTES: usize = 2 * ANSWER_MAX_BYTES;
/// How long an answer is kept. A reader that has not asked for the next page for so long is gone.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Most patience with an instance that has let a question pass and has said nothing since.
const OF_THE_SILENT: Duration = Duration::from_millis(250);

/// Makes the answer to a question.
pub type Responder = Box<dyn Fn(&[u8]) -> std::result::Result<Vec<u8>, String> + Send + Sync>;

/// An instance and its answer, or why that is missing.
pub type Answer = (InstanceId, std::result::Result<Vec<u8>, Missing>);

/// Why an instance's answer is missing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Missing {
    #[error("it did not answer within {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("it is no member of the cluster any more")]
    Gone,
    #[error("{0}")]
    Failed(String),
}

/// A question of this instance to one other.
struct Open {
    to: InstanceId,
    question: Arc<[u8]>,
    /// The pages that have come, one after the other.
    bytes: Vec<u8>,
    /// How many pages have come.
    have: u32,
    /// The number of the making of the answer from which the pages are.
    making: u64,
    heard: Instant,
    outcome: Option<std::result::Result<(), Missing>>,
    waiter: Arc<Waiter>,
}

/// A question of another instance.
struct Asked {
    from: InstanceId,
    id: u64,
    page: u32,
    question: Vec<u8>,
}

/// An answer of more than one page, kept for its reader.
struct Kept {
    bytes: Vec<u8>,
    making: u64,
    read: Instant,
}

#[derive(Default)]
struct Inbox {
    queue: VecDeque<Asked>,
    kept: HashMap<(InstanceId, u64), Kept>,
    makings: u64,
    stop: bool,
}

/// The questions of an instance and its answers to others; the module's head says more.
pub struct Inquiries {
    post: OnceLock<Arc<dyn Post>>,
    responder: OnceLock<Responder>,
    /// The members as last told; empty as long as this instance has always been alone.
    members: Mutex<Vec<InstanceId>>,
    open: Mutex<(u64, HashMap<u64, Open>)>,
    /// Those who have let a question pass, and have said nothing since.
    silent: Mutex<Vec<InstanceId>>,
    inbox: Mutex<Inbox>,
    asked: Condvar,
    worker: Worker,
    /// This object, for the thread.
    own: std::sync::Weak<Inquiries>,
}

impl Inquiries {
    /// Makes the layer of one life. `incarnation` keeps the numbers of questions of two lives
    /// apart.
    pub(crate) fn new(incarnation: u32) -> Arc<Inquiries> {
        Arc::new_cyclic(|own| Inquiries {
            post: OnceLock::new(),
            responder: OnceLock::new(),
            members: Mutex::default(),
            open: Mutex::new((u64::from(incarnation) << 32, HashMap::default())),
            silent: Mutex::default(),
            inbox: Mutex::default(),
            asked: Condvar::new(),
            worker: Worker::default(),
            own: own.clone(),
        })
    }

    /// Sets the function that answers the others' questions. Called once.
    pub fn respond_with(&self, responder: Responder) {
        assert!(
            self.responder.set(responder).is_ok(),
            "invariant: one responder answers for an instance"
        );
    }

    /// Asks all others, and does `meanwhile` while they answer. Each instance may be silent for
    /// `patience` at most between two pages. Fails if the session's statement is cancelled. The
    /// caller is a session that holds no latch.
    pub fn ask_others<T>(
        &self,
        question: &[u8],
        patience: Duration,
        meanwhile: impl FnOnce() -> T,
    ) -> Result<(Vec<Answer>, T)> {
        let asking = Asking {
            of: self,
            numbers: self.begin(&self.others(), question),
        };
        let made = meanwhile();
        let answers = asking
            .numbers
            .iter()
            .map(|n| self.await_answer(*n, patience, OF_THE_SILENT.min(patience)));
        let answers = answers.collect::<Result<Vec<_>>>()?;
        Ok((answers, made))
    }

    /// Asks one other, as [`Inquiries::ask_others`] asks all. One that is no member is gone.
    pub fn ask_one(
        &self,
        to: InstanceId,
        question: &[u8],
        patience: Duration,
    ) -> Result<std::result::Result<Vec<u8>, Missing>> {
        if !self.others().contains(&to) {
            return Ok(Err(Missing::Gone));
        }
        let asking = Asking {
            of: self,
            numbers: self.begin(&[to], question),
        };
        let (_, answer) = self.await_answer(asking.numbers[0], patience, patience)?;
        Ok(answer)
    }

    /// The members but this instance.
    fn others(&self) -> Vec<InstanceId> {
        let Some(post) = self.post.get() else {
            return Vec::new();
        };
        let mut others = self.members.lock().clone();
        others.retain(|m| *m != post.me());
        others
    }

    fn begin(&self, others: &[InstanceId], question: &[u8]) -> Vec<u64> {
        assert!(
            question.len() <= QUESTION_MAX_BYTES,
            "invariant: questions are short"
        );
        let question: Arc<[u8]> = question.into();
        let mut open = self.open.lock();
        let first = open.0 + 1;
        for &to in others {
            open.0 += 1;
            let number = open.0;
            let new = Open {
                to,
                question: question.clone(),
                bytes: Vec::new(),
                have: 0,
                making: 0,
                heard: seam::now(),
                outcome: None,
                waiter: Waiter::new(),
            };
            self.ask_on(number, &new);
            open.1.insert(number, new);
        }
        (first..=open.0).collect()
    }

    /// Waits for an answer. Patience with those who have been silent before is another.
    fn await_answer(
        &self,
        number: u64,
        patience: Duration,
        with_the_silent: Duration,
    ) -> Result<Answer> {
        loop {
            let (to, waiter, deadline) = {
                let mut open = self.open.lock();
                let q = open.1.get_mut(&number);
                let q = q.expect(
                    "invariant: a question is open as long as somebody waits for its answer",
                );
                if let Some(outcome) = q.outcome.take() {
                    let bytes = std::mem::take(&mut q.bytes);
                    return Ok((q.to, outcome.map(|()| bytes)));
                }
                let mut silent = self.silent.lock();
                let patience = match silent.contains(&q.to) {
                    true => with_the_silent,
                    false => patience,
                };
                let deadline = q.heard + patience;
                if deadline <= seam::now() {
                    if !silent.contains(&q.to) {
                        silent.push(q.to);
                    }
                    return Ok((q.to, Err(Missing::Silent(patience))));
                }
                (q.to, q.waiter.clone(), deadline)
            };
            let p = [u64::from(to.0), 0, 0];
            if waiter.wait(Event::PxDeqMessage, p, Some(deadline)) == WaitResult::Cancelled {
                return Err(txn::Error::Cancelled(wait::Cancelled).into());
            }
        }
    }

    /// Asks for the first page that has not come.
    fn ask_on(&self, number: u64, q: &Open) {
        let (id, page) = (number, q.have);
        self.send(q.to, Head::Ask { id, page }, &q.question);
    }

    fn send(&self, to: InstanceId, head: Head, behind: &[u8]) {
        if let Some(post) = self.post.get() {
            let parcel = Parcel {
                route: Route::Hash(0),
                kind: head.kind(),
                epoch: 0,
                body: &head.encode(behind),
                block: None,
            };
            post.send(to, parcel);
        }
    }

    // ---- for the receiving threads ----

    fn was_asked(&self, from: InstanceId, (id, page): (u64, u32), question: &[u8]) {
        let mut inbox = self.inbox.lock();
        let known = |a: &Asked| (a.from, a.id, a.page) == (from, id, page);
        if inbox.queue.iter().any(known) {
            return;
        }
        if inbox.queue.len() >= QUEUE_MAX {
            drop(inbox);
            let why = format!("{QUEUE_MAX} questions wait there already");
            self.send_failure(from, id, &why);
            return;
        }
        inbox.queue.push_back(Asked {
            from,
            id,
            page,
            question: question.to_vec(),
        });
        self.asked.notify_one();
    }

    fn was_answered(
        &self,
        from: InstanceId,
        a: Page,
        bytes: &[u8],
    ) -> std::result::Result<(), Bad> {
        let mut open = self.open.lock();
        // The asker may have given up.
        let Some(q) = open.1.get_mut(&a.id).filter(|q| q.to == from) else {
            return Ok(());
        };
        if q.outcome.is_some() {
            return Ok(());
        }
        q.heard = seam::now();
        if a.pages == 0 {
            let why = String::from_utf8_lossy(bytes).into_owned();
            q.outcome = Some(Err(Missing::Failed(why)));
            q.waiter.wake();
            return Ok(());
        }
        if q.making < a.making {
            (q.have, q.making) = (0, a.making);
            q.bytes.clear();
        }
        // The page was asked for twice, or is of an earlier making.
        if (a.making, a.page) != (q.making, q.have) {
            return Ok(());
        }
        if q.bytes.len() + bytes.len() > ANSWER_MAX_BYTES {
            return Err(Bad::because("an answer is longer than possible"));
        }
        q.have += 1;
        q.bytes.extend_from_slice(bytes);
        if q.have == a.pages {
            q.outcome = Some(Ok(()));
            q.waiter.wake();
            if a.pages > 1 {
                self.send(from, Head::End { id: a.id }, &[]);
            }
        } else {
            self.ask_on(a.id, q);
        }
        Ok(())
    }

    fn drive_again(&self, which: impl Fn(InstanceId) -> bool) {
        for (number, q) in &self.open.lock().1 {
            if q.outcome.is_none() && which(q.to) {
                self.ask_on(*number, q);
            }
        }
    }

    // ---- the thread pz00 ----

    fn next(&self) -> Option<Asked> {
        let mut inbox = self.inbox.lock();
        loop {
            if inbox.stop {
                return None;
            }
            if let Some(asked) = inbox.queue.pop_front() {
                return Some(asked);
            }
            wait::during(Event::ParallelWorker, [0; 3], || {
                self.asked.wait(&mut inbox);
            });
        }
    }

    fn serve(&self, asked: &Asked) {
        let key = (asked.from, asked.id);
        {
            let mut inbox = self.inbox.lock();
            if let Some(kept) = inbox.kept.get_mut(&key) {
                kept.read = seam::now();
                self.send_page(key, asked.page, kept.making, &kept.bytes);
                return;
            }
        }
        let made = match self.responder.get() {
            // The responder only reads. The instance's own sessions meet the same broken invariant
            // as an error; a question from elsewhere must not end this instance.
            Some(respond) => catch_unwind(AssertUnwindSafe(|| respond(&asked.question)))
                .unwrap_or_else(|_| Err("its answer broke an invariant".to_string())),
            None => Err("it is starting".to_string()),
        };
        let made = made.and_then(|bytes| match bytes.len() {
            n if n > ANSWER_MAX_BYTES => Err(format!(
                "its answer has {n} bytes, and {ANSWER_MAX_BYTES} are the limit"
            )),
            _ => Ok(bytes),
        });
        let bytes = match made {
            Ok(bytes) => bytes,
            Err(why) => return self.send_failure(asked.from, asked.id, &why),
        };
        let mut inbox = self.inbox.lock();
        inbox.makings += 1;
        let making = inbox.makings;
        self.send_page(key, 0, making, &bytes);
        if pages_of(&bytes) > 1 {
            let read = seam::now();
            inbox.kept.insert(
                key,
                Kept {
                    bytes,
                    making,
                    read,
                },
            );
            inbox.make_room();
        }
    }

    fn send_page(&self, (to, id): (InstanceId, u64), page: u32, making: u64, bytes: &[u8]) {
        let pages = pages_of(bytes);
        // The page asked for may be of an earlier making, which had more pages.
        let page = if page < pages { page } else { 0 };
        let from = page as usize * PAGE_BYTES;
        let bytes = &bytes[from..bytes.len().min(from + PAGE_BYTES)];
        let page = Page {
            id,
            making,
            page,
            pages,
        };
        self.send(to, Head::Answer(page), bytes);
    }

    fn send_failure(&self, to: InstanceId, id: u64, why: &str) {
        let mut end = why.len().min(QUESTION_MAX_BYTES);
        while !why.is_char_boundary(end) {
            end -= 1;
        }
        let page = Page {
            id,
            making: 0,
            page: 0,
            pages: 0,
        };
        self.send(to, Head::Answer(page), &why.as_bytes()[..end]);
    }
}

impl Inbox {
    /// Drops kept answers until all fit. Those that were read last stay.
    fn make_room(&mut self) {
        while self.kept.len() > 1
            && self.kept.values().map(|k| k.bytes.len()).sum::<usize>() > KEPT_MAX_BYTES
        {
            let oldest = self.kept.iter().min_by_key(|(_, k)| k.read);
            let oldest = *oldest.expect("invariant: there are two").0;
            self.kept.remove(&oldest);
        }
    }
}

/// Questions that stay open until this is dropped.
struct Asking<'a> {
    of: &'a Inquiries,
    numbers: Vec<u64>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut open = self.of.open.lock();
        for number in &self.numbers {
            open.1.remove(number);
        }
    }
}

fn pages_of(bytes: &[u8]) -> u32 {
    bytes.len().div_ceil(PAGE_BYTES).max(1) as u32
}

impl Layer for Inquiries {
    fn join(&self, post: Arc<dyn Post>) -> Result<()> {
        assert!(
            self.post.set(post).is_ok(),
            "invariant: a cluster is joined once"
        );
        let own = self.own.clone();
        self.worker.start("pz00", own, Self::next, Self::serve)
    }

    fn message(
        &self,
        from: InstanceId,
        _: u64,
        kind: u16,
        body: &[u8],
        _: Option<&BlockBuf>,
    ) -> std::result::Result<(), String> {
        self.silent.lock().retain(|k| *k != from);
        let told = Head::decode(kind, body).and_then(|(head, behind)| match head {
            Head::Ask { id, page } => {
                self.was_asked(from, (id, page), behind);
                Ok(())
            }
            Head::Answer(page) => self.was_answered(from, page, behind),
            Head::End { id } => {
                self.inbox.lock().kept.remove(&(from, id));
                Ok(())
            }
        });
        told.map_err(|why| format!("no question and no answer: {why}"))
    }

    fn reconnected(&self, peer: InstanceId) {
        self.drive_again(|to| to == peer);
    }

    fn tick(&self) {
        self.drive_again(|_| true);
        let mut inbox = self.inbox.lock();
        inbox.kept.retain(|_, k| seam::elapsed(k.read) < KEPT_FOR);
    }

    fn members_changed(&self, members: &Members) -> Result<()> {
        let up = members.numbers();
        for q in self.open.lock().1.values_mut() {
            if !up.contains(&q.to) {
                q.outcome.get_or_insert(Err(Missing::Gone));
                q.waiter.wake();
            }
        }
        self.silent.lock().clear();
        let mut inbox = self.inbox.lock();
        inbox.queue.retain(|a| up.contains(&a.from));
        inbox.kept.retain(|(from, _), _| up.contains(from));
        *self.members.lock() = up;
        Ok(())
    }

    fn stopped(&self) {
        self.inbox.lock().stop = true;
        self.asked.notify_all();
        self.worker.join();
    }
}

#[cfg(test)]
mod tests;
