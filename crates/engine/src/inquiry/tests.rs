//! Instances in one process over channels that lose, repeat and keep messages.

use super::*;
use seam::thread::JoinHandle;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Kinds of messages.
const ASK: u16 = 240;
const ANSWER: u16 = 241;
const END: u16 = 242;

/// Longer than any test takes on a loaded machine. Only a failing test waits for so long.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(30);

type Wire = (InstanceId, u16, Vec<u8>);

struct Node {
    me: InstanceId,
    wires: Vec<Sender<Wire>>,
    /// Of every so many messages one is lost and another comes twice; zero: none.
    faulty: u64,
    random: AtomicU64,
}

impl Post for Node {
    fn me(&self) -> InstanceId {
        self.me
    }
    fn send(&self, to: InstanceId, parcel: Parcel<'_>) {
        let message = (self.me, parcel.kind, parcel.body.to_vec());
        let wire = &self.wires[usize::from(to.0) - 1];
        let mut n = self.random.load(Relaxed);
        n = n
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.random.store(n, Relaxed);
        let luck = if self.faulty > 0 {
            (n >> 33) % self.faulty
        } else {
            2
        };
        // An instance that has stopped hears nothing any more.
        if luck != 0 {
            let _ = wire.send(message.clone());
        }
        if luck == 1 {
            let _ = wire.send(message);
        }
    }
}

struct World {
    nodes: Vec<Arc<Inquiries>>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

fn members(up: &[u16]) -> Members {
    let member = |k: &u16| interconnect::Member {
        instance: InstanceId(*k),
        incarnation: 1,
    };
    Members {
        epoch: 1,
        up: up.iter().map(member).collect(),
        dead: Vec::new(),
        in_limbo: Vec::new(),
    }
}

/// Makes `n` instances. Those in `deaf` receive nothing.
fn world(n: u16, faulty: u64, seed: u64, deaf: &[u16]) -> World {
    let (wires, ends): (Vec<_>, Vec<Receiver<Wire>>) = (0..n).map(|_| channel()).unzip();
    let stop: Arc<AtomicBool> = Arc::default();
    let mut threads = Vec::new();
    let mut nodes = Vec::new();
    for (end, k) in ends.into_iter().zip(1..) {
        let node = Inquiries::new(1);
        let post = Node {
            me: InstanceId(k),
            wires: wires.clone(),
            faulty,
            random: AtomicU64::new(seed + u64::from(k)),
        };
        node.join(Arc::new(post)).unwrap();
        node.members_changed(&members(&(1..=n).collect::<Vec<_>>()))
            .unwrap();
        nodes.push(node.clone());
        let (stop, deaf) = (stop.clone(), deaf.contains(&k));
        threads.push(seam::thread::spawn(move || {
            while !stop.load(Relaxed) {
                match end.recv_timeout(Duration::from_millis(5)) {
                    Ok((from, kind, body)) if !deaf => {
                        node.message(from, 0, kind, &body, None).unwrap();
                    }
                    _ => node.tick(),
                }
            }
        }));
    }
    World {
        nodes,
        threads,
        stop,
    }
}

impl World {
    fn node(&self, k: usize) -> &Arc<Inquiries> {
        &self.nodes[k - 1]
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.threads.drain(..).for_each(|t| t.join().unwrap());
        self.nodes.iter().for_each(|n| n.stopped());
    }
}

/// An answer of so many bytes, of which none equals its neighbour.
fn long(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn all_answer_and_are_not_waited_for_one_after_the_other() {
    let w = world(3, 0, 1, &[]);
    for k in [2, 3] {
        let mine = k as u8;
        w.node(k)
            .respond_with(Box::new(move |q| Ok([q, &[mine]].concat())));
    }
    let (answers, here) = w.node(1).ask_others(b"how are you", LONG, || 5).unwrap();
    let said = |k: u16| {
        (
            InstanceId(k),
            Ok([b"how are you".as_slice(), &[k as u8]].concat()),
        )
    };
    assert_eq!((answers, here), (vec![said(2), said(3)], 5));
    assert!(w.node(1).open.lock().1.is_empty());
}

#[test]
fn one_is_asked_alone() {
    let w = world(3, 0, 1, &[2]);
    w.node(3).respond_with(Box::new(|q| Ok(q.to_vec())));
    let ask = |to: u16, patience| {
        let answer = w.node(1).ask_one(InstanceId(to), b"you", patience);
        answer.unwrap()
    };
    assert_eq!(ask(3, LONG), Ok(b"you".to_vec()));
    assert_eq!(ask(2, SHORT), Err(Missing::Silent(SHORT)));
    assert_eq!(ask(4, LONG), Err(Missing::Gone));
    assert_eq!(ask(1, LONG), Err(Missing::Gone), "nobody asks itself");
    assert!(w.node(1).open.lock().1.is_empty());
}

/// Whoever asks about everything does not wait for each answer of the same silent instance.
#[test]
fn a_silent_one_is_not_waited_for_long_again_until_it_speaks() {
    let w = world(2, 0, 1, &[2]);
    w.node(2).respond_with(Box::new(|q| Ok(q.to_vec())));
    let ask = |patience| {
        let (answers, ()) = w.node(1).ask_others(b"you", patience, || ()).unwrap();
        answers[0].1.clone()
    };
    assert_eq!(ask(SHORT), Err(Missing::Silent(SHORT)));
    assert_eq!(ask(LONG), Err(Missing::Silent(OF_THE_SILENT)));
    // It asks something itself: it is there again, and not waited for less than others.
    let head = Head::Ask { id: 1, page: 0 };
    let body = head.encode(b"I");
    let (one, two) = (w.node(1), InstanceId(2));
    one.message(two, 0, head.kind(), &body, None).unwrap();
    assert!(one.silent.lock().is_empty());
}

#[test]
fn a_long_answer_comes_whole_over_a_bad_connection() {
    let seed = std::env::var("BRAID_SEED").map_or_else(
        |_| std::process::id().into(),
        |s| s.parse().expect("BRAID_SEED is a number"),
    );
    println!("BRAID_SEED={seed}");
    let w = world(2, 8, seed, &[]);
    for bytes in [0, 1, PAGE_BYTES, PAGE_BYTES + 1, 20 * PAGE_BYTES + 77] {
        let question = (bytes as u64).to_le_bytes();
        w.node(2).responder.get_or_init(|| {
            Box::new(|q| Ok(long(u64::from_le_bytes(q.try_into().unwrap()) as usize)))
        });
        let (answers, ()) = w.node(1).ask_others(&question, LONG, || ()).unwrap();
        assert_eq!(answers[0].1.as_ref().map(Vec::len), Ok(bytes));
        assert!(answers[0].1 == Ok(long(bytes)), "other bytes");
    }
}

#[test]
fn who_is_missing_is_named_with_the_reason() {
    let w = world(4, 0, 1, &[2]);
    w.node(3)
        .respond_with(Box::new(|_| Err("no such view".to_string())));
    w.node(4).respond_with(Box::new(|_| Ok(vec![4])));
    let (answers, ()) = w.node(1).ask_others(b"?", SHORT, || ()).unwrap();
    assert_eq!(answers[0], (InstanceId(2), Err(Missing::Silent(SHORT))));
    let failed = Missing::Failed("no such view".to_string());
    assert_eq!(answers[1], (InstanceId(3), Err(failed)));
    assert_eq!(answers[2].1, Ok(vec![4]));
    // The asker does not wait for an instance that leaves while it is asked.
    let leaves = || w.node(1).members_changed(&members(&[1, 3])).unwrap();
    let (answers, ()) = w.node(1).ask_others(b"?", LONG, leaves).unwrap();
    assert_eq!(answers[0], (InstanceId(2), Err(Missing::Gone)));
    let (answers, ()) = w.node(1).ask_others(b"?", LONG, || ()).unwrap();
    assert_eq!(answers.len(), 1);
}

#[test]
fn nobody_who_is_starting_is_waited_for() {
    let w = world(2, 0, 1, &[]);
    let (answers, ()) = w.node(1).ask_others(b"?", LONG, || ()).unwrap();
    let starting = Missing::Failed("it is starting".to_string());
    assert_eq!(answers, [(InstanceId(2), Err(starting))]);
}

#[test]
fn an_answer_that_panics_is_a_failure_and_the_next_one_is_made() {
    let w = world(2, 0, 1, &[]);
    w.node(2).respond_with(Box::new(|q| match q {
        b"bad" => panic!("a question that nobody has thought of"),
        q => Ok(q.to_vec()),
    }));
    let (answers, ()) = w.node(1).ask_others(b"bad", LONG, || ()).unwrap();
    let failed = Missing::Failed("its answer broke an invariant".to_string());
    assert_eq!(answers[0].1, Err(failed));
    let (answers, ()) = w.node(1).ask_others(b"good", LONG, || ()).unwrap();
    assert_eq!(answers[0].1, Ok(b"good".to_vec()));
}

#[test]
fn a_cancelled_question_is_forgotten() {
    let w = world(2, 0, 1, &[2]);
    let node = w.node(1).clone();
    let (tell, told) = channel();
    let session = seam::thread::spawn(move || {
        let guard = wait::session::register(wait::session::Kind::User, "asks");
        tell.send(guard.session().sid).unwrap();
        node.ask_others(b"?", LONG, || ()).map(drop)
    });
    assert!(wait::session::cancel(told.recv().unwrap()));
    assert!(session.join().unwrap().is_err());
    assert!(w.node(1).open.lock().1.is_empty());
}

/// Bytes from outside are refused or ignored, and no more of them is kept than the limits allow.
#[test]
fn hostile_bytes_are_refused_and_change_no_answer() {
    let w = world(2, 0, 1, &[]);
    let (from, node) = (InstanceId(2), w.node(1));
    let page = |pages: u32, at: u32, bytes: &[u8]| {
        let (id, making) = ((1u64 << 32) + 1, 1);
        let page = Page {
            id,
            making,
            page: at,
            pages,
        };
        Head::Answer(page).encode(bytes)
    };
    let full = vec![7; PAGE_BYTES];
    let (over, half) = ([full.as_slice(), &[7]].concat(), &full[..100]);
    let refused = [
        page(2, 2, half),
        page(0, 1, b""),
        page(1, 0, &over),
        page(3, 1, half),
    ];
    for body in &refused {
        assert!(node.message(from, 0, ANSWER, body, None).is_err());
    }
    let good = page(1, 0, b"hello");
    for n in 0..24 {
        assert!(node.message(from, 0, ANSWER, &good[..n], None).is_err());
    }
    for n in 0..12 {
        assert!(node.message(from, 0, ASK, &good[..n], None).is_err());
    }
    let endless = vec![0; 12 + QUESTION_MAX_BYTES + 1];
    assert!(node.message(from, 0, ASK, &endless, None).is_err());
    // An answer to a question that nobody has asked, and one from an instance that was not asked.
    node.message(from, 0, ANSWER, &good, None).unwrap();
    node.message(from, 0, END, &good[..8], None).unwrap();
    assert!(node.message(from, 0, END, &good[..7], None).is_err());
    let (answers, ()) = node
        .ask_others(b"?", SHORT, || {
            node.message(InstanceId(1), 0, ANSWER, &good, None).unwrap();
        })
        .unwrap();
    assert!(answers[0].1.is_err(), "instance 2 has no responder");
}

#[test]
fn questions_beyond_the_limit_are_told_so_and_kept_answers_are_bounded() {
    let mut inbox = Inbox::default();
    for id in 0..5 {
        let kept = Kept {
            bytes: vec![0; KEPT_MAX_BYTES / 4],
            making: id,
            read: Instant::now(),
        };
        inbox.kept.insert((InstanceId(2), id), kept);
    }
    inbox.make_room();
    assert_eq!(inbox.kept.len(), 4);
    assert!(
        !inbox.kept.contains_key(&(InstanceId(2), 0)),
        "the oldest goes"
    );
    let node = Inquiries::new(1);
    let ask = |id: u64| [id.to_le_bytes().as_slice(), &[0; 4], b"q"].concat();
    for id in 0..=QUEUE_MAX as u64 {
        node.message(InstanceId(2), 0, ASK, &ask(id), None).unwrap();
        node.message(InstanceId(2), 0, ASK, &ask(id), None).unwrap();
    }
    assert_eq!(node.inbox.lock().queue.len(), QUEUE_MAX);
}
