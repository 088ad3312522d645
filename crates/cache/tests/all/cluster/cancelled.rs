//! Sessions whose statements are cancelled while they wait for another instance, and what becomes
//! of the blocks that they have asked for.

use super::*;
use wait::session;

/// Longer than anything here takes. Only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn is_cancelled<T>(result: &cache::Result<T>) -> bool {
    matches!(result, Err(cache::Error::Cancelled(_)))
}

/// Cuts the connection: the first instance hears nothing that the second one says until they are
/// connected again.
pub(super) fn cut(cluster: &Cluster) -> Sender<Mail> {
    let mut to = cluster.nodes[1].network.to.lock().unwrap();
    to.remove(&id(0)).expect("they are connected")
}

pub(super) fn mend(cluster: &Cluster, queue: Sender<Mail>) {
    let mut to = cluster.nodes[1].network.to.lock().unwrap();
    to.insert(id(0), queue);
    drop(to);
    cluster.cache(0).reconnected(id(1));
    cluster.cache(1).reconnected(id(0));
}

/// Messages of the second instance that the first one hears only when they are let through.
struct Held {
    queue: Sender<Mail>,
    mail: Receiver<Mail>,
}

fn hold(cluster: &Cluster) -> Held {
    let (say, mail) = channel();
    let mut to = cluster.nodes[1].network.to.lock().unwrap();
    let queue = to.insert(id(0), say).expect("they are connected");
    Held { queue, mail }
}

impl Held {
    fn let_through(self, cluster: &Cluster) {
        // The queue is locked, so that nothing said meanwhile overtakes.
        let mut to = cluster.nodes[1].network.to.lock().unwrap();
        for mail in self.mail.try_iter() {
            self.queue.send(mail).unwrap();
        }
        to.insert(id(0), self.queue);
    }
}

/// Begins `f` in a session, and cancels its statement once the session waits for the cluster.
/// Returns what came of it.
pub(super) fn cancelled(
    cache: &Arc<Cache>,
    f: impl FnOnce(&Arc<Cache>) -> cache::Result<()> + Send + 'static,
) -> cache::Result<()> {
    let (say, hear) = channel();
    let cache = cache.clone();
    let thread = std::thread::spawn(move || {
        let registered = session::register(session::Kind::User, "cancelled");
        say.send(registered.session().clone()).unwrap();
        f(&cache)
    });
    let session = hear.recv().unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    while session.waiting().is_none() {
        if thread.is_finished() {
            panic!("it has not waited: {:?}", thread.join());
        }
        assert!(std::time::Instant::now() < deadline, "it does not wait");
        std::thread::yield_now();
    }
    assert!(session::cancel(session.sid));
    thread.join().unwrap()
}

/// Sessions of the first instance ask for these blocks, to change them, and are cancelled while
/// they wait.
fn ask_and_give_up(cluster: &Cluster, blocks: std::ops::RangeInclusive<u32>) {
    for b in blocks {
        let read = move |cache: &Arc<Cache>| {
            session::cancellable(|| cache.read_to_change(dba(b)).map(drop))
        };
        assert!(is_cancelled(&cancelled(cluster.cache(0), read)));
    }
}

/// The block is dirty with the second instance, which does not answer. Both waits end. The blocks
/// that they had asked for come later, and are there for others.
#[test]
fn a_wait_for_a_block_ends_with_its_statement() {
    let cluster = Cluster::new(2, 5);
    load(cluster.cache(1), 1..=8);
    (0..2).for_each(|n| cluster.join(n));
    cluster.enter(1, &[0, 1]);
    (1..=8).for_each(|b| increment(cluster.cache(1), b, false));

    let queue = cut(&cluster);
    let read = |cache: &Arc<Cache>| {
        let snapshot = cache.redo().clock().now();
        session::cancellable(|| cache.read_as_of(dba(1), snapshot).map(drop))
    };
    let write =
        |cache: &Arc<Cache>| session::cancellable(|| cache.read_to_change(dba(2)).map(drop));
    assert!(is_cancelled(&cancelled(cluster.cache(0), read)));
    assert!(is_cancelled(&cancelled(cluster.cache(0), write)));
    mend(&cluster, queue);

    for b in 1..=8 {
        assert_eq!(value(cluster.cache(0), b, false), 1, "block {b}");
        increment(cluster.cache(0), b, b % 2 == 0);
        increment(cluster.cache(1), b, false);
        assert_eq!(value(cluster.cache(0), b, true), 3, "block {b}");
    }
    cluster.end();
}

/// Blocks are granted from disk to sessions that have gone meanwhile, once it is heard that the
/// other instance has let go of them. Nobody reads these blocks, so they are let go, too, and
/// nobody waits for a tick. (An instance that is left alone has no ticks, so its leaving would
/// never end. Found by the simulation of the whole engine, seed 75169.)
#[test]
fn a_grant_for_a_session_that_is_gone_is_let_go() {
    let cluster = Cluster::new(2, 5);
    load(cluster.cache(1), 1..=8);
    cluster.cache(1).checkpoint().unwrap();
    (0..2).for_each(|n| cluster.join(n));
    cluster.enter(1, &[0, 1]);
    // Both instances are served, so each knows what the other has.
    (1..=8).for_each(|b| increment(cluster.cache(1), b, false));
    cluster.cache(1).checkpoint().unwrap();
    let held = hold(&cluster);
    let deadline = std::time::Instant::now() + PATIENCE;
    while cluster.cache(1).release_everything() > 0 {
        assert!(std::time::Instant::now() < deadline, "it keeps a block");
        std::thread::yield_now();
    }
    ask_and_give_up(&cluster, 1..=8);
    held.let_through(&cluster);

    let other = cluster.cache(1).clone();
    let (say, hear) = channel();
    std::thread::spawn(move || {
        (1..=8).for_each(|b| increment(&other, b, false));
        say.send(())
    });
    assert_eq!(hear.recv_timeout(PATIENCE), Ok(()), "it waits for nobody");
    for b in 1..=8 {
        increment(cluster.cache(0), b, false);
        assert_eq!(value(cluster.cache(1), b, true), 3, "block {b}");
    }
    cluster.end();
}

/// R5. A block came for a session that had gone, and left again. The image that stays of it needs
/// all the redo that the image before it needed. Otherwise the checkpoint passes redo whose blocks
/// nobody has written, and a recovery of all instances finds a gap.
#[test]
fn what_came_for_nobody_leaves_with_the_redo_of_the_image_before() {
    let cluster = Cluster::new(2, 5);
    load(cluster.cache(1), 1..=4);
    cluster.cache(1).checkpoint().unwrap();
    (0..2).for_each(|n| cluster.join(n));
    cluster.enter(1, &[0, 1]);
    cluster.cache(0).checkpoint().unwrap();
    let first_needed = cluster.cache(0).redo().end();
    for b in 1..=4 {
        increment(cluster.cache(0), b, false);
        increment(cluster.cache(1), b, false);
    }
    let held = hold(&cluster);
    ask_and_give_up(&cluster, 1..=4);
    held.let_through(&cluster);
    // The blocks come to the first instance, and go back.
    (1..=4).for_each(|b| increment(cluster.cache(1), b, false));
    // The first instance does not hear that they are on disk.
    let queue = cut(&cluster);
    cluster.cache(0).checkpoint().unwrap();
    let reached = cluster.cache(0).redo().checkpoint();
    assert!(
        reached <= first_needed,
        "{reached:?} is beyond {first_needed:?}"
    );
    mend(&cluster, queue);
    cluster.end();
}

/// A block that came for a session that had gone is in a frame after a tick. There it can be
/// written and evicted like every block.
#[test]
fn what_came_for_nobody_gets_a_frame() {
    let cluster = Cluster::new(2, 5);
    load(cluster.cache(1), 1..=4);
    (0..2).for_each(|n| cluster.join(n));
    cluster.enter(1, &[0, 1]);
    (1..=4).for_each(|b| increment(cluster.cache(1), b, false));
    let held = hold(&cluster);
    ask_and_give_up(&cluster, 1..=4);
    held.let_through(&cluster);
    let deadline = std::time::Instant::now() + PATIENCE;
    while (1..=4).any(|b| cluster.cache(0).try_read(dba(b)).is_none()) {
        assert!(std::time::Instant::now() < deadline, "they have no frames");
        cluster.cache(0).tick();
        std::thread::yield_now();
    }
    cluster.end();
}

/// A wait goes on if its end might leave half of a change behind.
#[test]
fn other_waits_do_not_end_with_the_statement() {
    let cluster = Arc::new(Cluster::new(2, 5));
    load(cluster.cache(1), 1..=1);
    (0..2).for_each(|n| cluster.join(n));
    cluster.enter(1, &[0, 1]);
    increment(cluster.cache(1), 1, false);

    let queue = cut(&cluster);
    let (say, hear) = channel();
    let other = cluster.clone();
    let writer = std::thread::spawn(move || {
        let registered = session::register(session::Kind::User, "not cancelled");
        say.send(registered.session().clone()).unwrap();
        let written = other.cache(0).write(dba(1)).map(drop);
        drop(registered);
        written
    });
    let session = hear.recv().unwrap();
    while session.waiting().is_none() {
        std::thread::yield_now();
    }
    assert!(session::cancel(session.sid));
    mend(&cluster, queue);
    assert!(writer.join().unwrap().is_ok());
    Arc::into_inner(cluster).unwrap().end();
}
