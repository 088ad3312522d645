//! The sampler's shares are those of the full accounting, within two points.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use wait::session::{self, Kind};
use wait::{AshSampler, Event};

const SESSIONS: u64 = 30;
const SECONDS: u64 = 4;
/// What sessions wait for, and for how many microseconds at most.
const WAITS: [(Event, u64); 3] = [
    (Event::EnqUl, 9000),
    (Event::LogFileSync, 4000),
    (Event::GcCurrentRequest, 2500),
];

fn work(number: u64, stop: &AtomicBool) -> [u64; WAITS.len() + 1] {
    let guard = session::register(Kind::User, "shares");
    session::set_active();
    let began = Instant::now();
    let mut random = number + 1;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(number);
        (random >> 33) % below
    };
    while !stop.load(Relaxed) {
        let (event, longest) = WAITS[next(WAITS.len() as u64) as usize];
        let pause = Duration::from_micros(next(longest));
        wait::during(event, [0; 3], || std::thread::park_timeout(pause));
        // Work, as far as a sample can tell: no wait. Nothing is computed, so that the sampler
        // gets a processor whatever the sessions do.
        std::thread::park_timeout(Duration::from_micros(next(2000)));
    }
    let all = began.elapsed().as_nanos() as u64;
    let waits = WAITS.map(|(event, _)| guard.session().counters.wait_ns(event));
    let [a, b, c] = waits;
    [a, b, c, all - a - b - c]
}

#[test]
fn shares_agree_within_two_points() {
    let stop = AtomicBool::new(false);
    let (accounted, sampled) = std::thread::scope(|s| {
        let workers: Vec<_> = (0..SESSIONS)
            .map(|n| {
                s.spawn({
                    let stop = &stop;
                    move || work(n, stop)
                })
            })
            .collect();
        let mut sampler = AshSampler::default();
        let until = Instant::now() + Duration::from_secs(SECONDS);
        while Instant::now() < until {
            std::thread::park_timeout(Duration::from_millis(7));
            sampler.sample();
        }
        let mut sampled = [0u64; WAITS.len() + 1];
        for row in wait::active_session_history() {
            if &*row.program == "shares" {
                let at = WAITS
                    .iter()
                    .position(|(event, _)| Some(*event) == row.event);
                sampled[at.unwrap_or(WAITS.len())] += 1;
            }
        }
        stop.store(true, Relaxed);
        let mut accounted = [0u64; WAITS.len() + 1];
        for worker in workers {
            let of_one = worker.join().expect("a session");
            accounted
                .iter_mut()
                .zip(of_one)
                .for_each(|(sum, n)| *sum += n);
        }
        (accounted, sampled)
    });
    let shares = |of: [u64; WAITS.len() + 1]| {
        let all = of.iter().sum::<u64>() as f64;
        of.map(|n| n as f64 / all * 100.0)
    };
    let (accounted, seen) = (shares(accounted), shares(sampled));
    println!("accounted {accounted:.1?} %, sampled {seen:.1?} %, {sampled:?} samples");
    for (full, sample) in accounted.iter().zip(seen) {
        assert!(
            (full - sample).abs() < 2.0,
            "{accounted:.1?} against {seen:.1?}"
        );
    }
}
