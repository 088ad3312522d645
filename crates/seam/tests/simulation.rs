//! What a simulation promises: one seed is one run; time jumps; some seed finds races and
//! deadlocks; processes are killed; the network delays, is cut and breaks.
#![cfg(debug_assertions)]

use seam::sim::{self, Options, Outcome, net};
use seam::{Condvar, Mutex, RwLock, thread};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

fn with<R: Send>(seed: u64, f: impl FnOnce() -> R + Send) -> Outcome<R> {
    sim::run(Options::new(seed), f)
}

/// Runs threads that meet at every kind of lock, and returns the order in which they passed.
fn busy() -> Vec<usize> {
    let order = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::new(RwLock::new(0));
    let turn = Arc::new((Mutex::new(0), Condvar::new()));
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let (order, shared, turn) = (order.clone(), shared.clone(), turn.clone());
            thread::spawn(move || {
                for _ in 0..20 {
                    order.lock().push(n);
                    *shared.write() += 1;
                    assert!(*shared.read() > 0);
                    thread::sleep(Duration::from_micros(50));
                }
                let (lock, changed) = &*turn;
                let mut next = lock.lock();
                while *next != n {
                    changed.wait(&mut next);
                }
                *next += 1;
                changed.notify_all();
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!((*shared.read(), *turn.0.lock()), (80, 4));
    std::mem::take(&mut *order.lock())
}

#[test]
fn a_seed_is_a_run() {
    let mut orders = BTreeSet::new();
    for seed in 0..20 {
        let first = with(seed, busy);
        assert_eq!(first, with(seed, busy), "seed {seed}");
        orders.insert(first.result);
    }
    assert!(orders.len() > 15, "seeds differ: {} orders", orders.len());
}

thread_local! {
    static ME: thread::Thread = thread::current();
}

/// A thread keeps its place to wait. The next simulation of the same test has another place.
#[test]
fn what_a_thread_keeps_is_not_the_next_simulations() {
    for seed in 1..4 {
        let outcome = with(seed, || {
            let (me, told) = (ME.with(Clone::clone), Arc::new(AtomicU64::new(0)));
            let tell = told.clone();
            let other = thread::spawn(move || {
                thread::sleep(Duration::from_millis(1));
                tell.store(1, SeqCst);
                me.unpark();
            });
            while told.load(SeqCst) == 0 {
                thread::park_timeout(Duration::from_secs(60));
            }
            other.join().unwrap();
        });
        assert!(outcome.time < Duration::from_secs(1), "{outcome:?}");
    }
}

#[test]
fn time_jumps_when_nobody_can_run() {
    let real = std::time::Instant::now();
    let outcome = with(1, || {
        let before = seam::now();
        let woken = thread::spawn(|| {
            thread::park_timeout(Duration::from_secs(100));
            seam::now()
        });
        let lock = Mutex::new(());
        let late = Condvar::new().wait_for(&mut lock.lock(), Duration::from_secs(50));
        assert!(late.timed_out());
        let woken = woken.join().unwrap() - before;
        assert!(woken >= Duration::from_secs(100) && woken < Duration::from_secs(101));
        assert!(seam::elapsed(before) >= woken);
    });
    assert!(outcome.time >= Duration::from_secs(100));
    assert!(real.elapsed() < Duration::from_secs(20));
}

/// The canary: an update that is read in one step and written in another. Some seeds must lose it,
/// some must not.
#[test]
fn a_lost_update_is_found() {
    let total = |seed| {
        with(seed, || {
            let counter = Arc::new(AtomicU64::new(0));
            let add = |c: Arc<AtomicU64>| {
                thread::spawn(move || {
                    let seen = c.load(SeqCst);
                    seam::hint::spin_loop();
                    c.store(seen + 1, SeqCst);
                })
            };
            let threads = [add(counter.clone()), add(counter.clone())];
            threads.into_iter().for_each(|t| t.join().unwrap());
            counter.load(SeqCst)
        })
        .result
    };
    let totals: BTreeSet<u64> = (0..100).map(total).collect();
    assert_eq!(totals, [1, 2].into());
}

/// Takes two locks in two orders. It runs as a child, which a deadlock ends.
#[test]
fn a_deadlock_is_found_and_said() {
    const SEED: &str = "SEAM_DEADLOCK_SEED";
    if let Ok(seed) = std::env::var(SEED) {
        with(seed.parse().unwrap(), || {
            let locks = Arc::new((Mutex::new(()), Mutex::new(())));
            let other = locks.clone();
            let t = thread::Builder::new().name("other".to_string());
            let t = t.spawn(move || {
                let _b = other.1.lock();
                let _a = other.0.lock();
            });
            {
                let _a = locks.0.lock();
                let _b = locks.1.lock();
            }
            t.unwrap().join().unwrap();
        });
        return;
    }
    let (mut found, mut passed) = (0, 0);
    for seed in 0..20 {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_deadlock_is_found_and_said", "--nocapture"])
            .env(SEED, seed.to_string())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr).into_owned();
        match child.status.success() {
            true => passed += 1,
            false => {
                assert!(
                    said.contains("a deadlock") && said.contains("other: waits for Lock"),
                    "{said}"
                );
                found += 1;
            }
        }
    }
    assert!(found > 0 && passed > 0, "{found} found, {passed} passed");
}

#[test]
fn who_is_killed_does_nothing_more_and_who_is_frozen_goes_on() {
    for seed in 0..10 {
        with(seed, || {
            let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            for process in [1, 2] {
                let counts = counts.clone();
                sim::start_in(process, "counts", move || {
                    loop {
                        counts[process as usize - 1].fetch_add(1, SeqCst);
                        thread::sleep(Duration::from_millis(1));
                    }
                });
            }
            thread::sleep(Duration::from_millis(200));
            sim::kill(1);
            sim::freeze(2, Duration::from_millis(500));
            let at = |n: usize| counts[n].load(SeqCst);
            let before = [at(0), at(1)];
            thread::sleep(Duration::from_millis(400));
            assert_eq!([at(0), at(1)], before);
            thread::sleep(Duration::from_millis(400));
            assert!(at(0) == before[0] && at(1) > before[1]);
        });
    }
}

/// Echoes what is received until the connection ends.
fn echo(listener: net::Listener) {
    while let Ok((socket, _)) = listener.accept() {
        let mut bytes = [0; 100];
        while let Ok((n, _)) = socket.receive(&mut bytes, None) {
            if n == 0 {
                break;
            }
            let soon = seam::now() + Duration::from_secs(60);
            if socket.send_all(&bytes[..n], soon).is_err() {
                break;
            }
        }
    }
}

#[test]
fn connections_keep_order_are_cut_and_break() {
    for seed in 0..20 {
        with(seed, || {
            let (tell, told) = (Arc::new(Mutex::new(None)), Arc::new(Condvar::new()));
            let (t, d) = (tell.clone(), told.clone());
            sim::start_in(7, "echo", move || {
                let listener = net::Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
                *t.lock() = Some(listener.local_addr());
                d.notify_all();
                echo(listener);
            });
            let address = {
                let mut address = tell.lock();
                while address.is_none() {
                    told.wait(&mut address);
                }
                address.unwrap()
            };
            let second = Duration::from_secs(1);
            let socket = net::Socket::connect(address, second).unwrap();
            let say = |socket: &net::Socket, text: &[u8]| {
                socket.send_all(text, seam::now() + second).unwrap();
            };
            let hear = |socket: &net::Socket, n: usize| {
                let mut heard = vec![0; n];
                let mut at = 0;
                while at < n {
                    match socket.receive(&mut heard[at..], Some(seam::now() + second))? {
                        (0, _) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                        (more, _) => at += more,
                    }
                }
                std::io::Result::Ok(heard)
            };
            for n in 0..10u8 {
                say(&socket, &[n; 1000]);
            }
            let all: Vec<u8> = (0..10).flat_map(|n| [n; 1000]).collect();
            assert_eq!(hear(&socket, all.len()).unwrap(), all);
            net::cut(0, 7);
            say(&socket, b"while cut");
            assert_eq!(
                hear(&socket, 1).unwrap_err().kind(),
                std::io::ErrorKind::TimedOut
            );
            net::heal(0, 7);
            assert_eq!(hear(&socket, 9).unwrap(), b"while cut");
            net::break_connections(0, 7);
            assert!(hear(&socket, 1).is_err());
            let socket = net::Socket::connect(address, second).unwrap();
            say(&socket, b"again");
            assert_eq!(hear(&socket, 5).unwrap(), b"again");
            sim::kill(7);
            assert!(hear(&socket, 1).is_err());
            let refused = net::Socket::connect(address, second).err().unwrap();
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        });
    }
}
