//! Measures what the accounting of a wait costs: `cargo run --release -p wait --example wait_cost`.
//! The waits themselves take no time here.

use wait::remote::{Served, Transfer};
use wait::session::{Kind, register};
use wait::{Event, during_as, during_remote, timestamp_ns};

const WAITS: u32 = 2_000_000;

fn ns_each(mut wait: impl FnMut(u32)) -> f64 {
    let began = cpu_ns();
    (0..WAITS).for_each(&mut wait);
    (cpu_ns() - began) / f64::from(WAITS)
}

/// CPU time of this thread. Other work on the machine does not count.
fn cpu_ns() -> f64 {
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel with schedstat");
    let ns = text.split_whitespace().next().and_then(|n| n.parse().ok());
    ns.expect("nanoseconds on a CPU")
}

fn main() {
    let _session = register(Kind::User, "wait_cost");
    let plain = ns_each(|_| during_as(Event::GcCrRequest, [0; 3], || ((), Event::GcCrBlock2Way)));
    let remote = ns_each(|n| {
        let served = Served {
            instance: 2,
            messages: 2,
            queue_ns: 5,
            transfer: Some(Transfer {
                object: n % 100,
                current: false,
                busy: false,
            }),
            ..Served::default()
        };
        let asked = (2, timestamp_ns());
        during_remote(Event::GcCrRequest, [0; 3], asked, || {
            ((), Event::GcCrBlock2Way, Some(served))
        });
    });
    println!(
        "a wait: {plain:.0} ns; one for another instance, with its parts and its object: {remote:.0} ns"
    );
}
