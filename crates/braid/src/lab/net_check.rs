//! What a long line with small kernel buffers carries.
//!
//! The paper moves data over 30 ms: 46 Mbit/s with the maximum of `tcp_rmem` at 174,760 bytes, 110
//! to 186 after raising it. Here a line of that length with that window, and with 16 MB, is laid
//! before an instance, and `braid net-check` is asked what limits it.

use std::time::Duration;

use super::bench::Bench;
use super::line::Line;
use super::report::{Goal, Report};
use crate::Failure;
use crate::cli::NetCheckLabArgs;
use crate::net_check::{Kernel, Measured, measure};

const PAPER: &str =
    "Remote access tuning: iperf reveals that rmem_max and wmem_max clamp the window";
/// Mbit/s before, and at best after, raising the kernel's maxima.
const PAPER_BEFORE: f64 = 46.0;
const PAPER_AFTER: f64 = 186.0;
/// Bytes that may be unacknowledged: the maximum of `tcp_rmem` before, 87,380 * 2, and after.
const SMALL: usize = 174_760;
const LARGE: usize = 16 << 20;
/// How far from window / round trip the clamped line may be.
const NEAR: f64 = 0.15;

pub fn run(args: &NetCheckLabArgs, bench: &Bench) -> Result<Report, Failure> {
    let db = bench.database("one", 1, 0)?;
    let round_trip = Duration::from_millis(args.round_trip_ms.into());
    let mut report = Report {
        lab: "net-check".to_string(),
        paper: PAPER.to_string(),
        ..Report::default()
    };
    let mut seen: Vec<(usize, Measured)> = Vec::new();
    for window in [SMALL, LARGE] {
        bench.step(&format!(
            "a line of {} ms with a window of {window} bytes",
            args.round_trip_ms
        ));
        let near = Line { round_trip, window }.lay(db.address(1))?;
        seen.push((window, measure(near, None)?));
    }
    let [(_, small), (_, large)] = &seen[..] else {
        return Err(Failure("two windows have two results".to_string()));
    };
    let expected = |window: usize| window as f64 / round_trip.as_secs_f64();
    let mbit = |bytes: f64| bytes * 8.0 / 1e6;
    let row = |(window, m): &(usize, Measured)| {
        vec![
            window.to_string(),
            format!("{:.1}", m.round_trip.as_secs_f64() * 1e3),
            format!("{:.1}", mbit(m.bytes_per_second)),
            format!("{:.1}", mbit(expected(*window))),
            format!("{:.0}", m.product()),
        ]
    };
    let columns = [
        "window (bytes)",
        "round trip (ms)",
        "bandwidth (Mbit/s)",
        "window / round trip (Mbit/s)",
        "bandwidth * round trip (bytes)",
    ];
    report.table(
        "Rows of an instance over the line",
        &columns,
        seen.iter().map(row).collect(),
    );
    report.chart(
        "Bandwidth",
        "Mbit/s",
        vec![
            ("the paper, before".to_string(), PAPER_BEFORE),
            ("the paper, after".to_string(), PAPER_AFTER),
            (
                "here, small window".to_string(),
                mbit(small.bytes_per_second),
            ),
            (
                "here, large window".to_string(),
                mbit(large.bytes_per_second),
            ),
        ],
    );
    let kernel = Kernel {
        receive_max: SMALL as u64,
        send_max: LARGE as u64,
        ..Kernel::default()
    };
    let found = kernel.clamps(small.round_trip, large.bytes_per_second);
    for clamp in &found {
        report.text(clamp.to_string());
    }
    report.text(
        "What to learn: one connection carries at most a window for each round trip, whatever the \
         line could. The window is what the kernel gives both ends: the maxima in tcp_rmem where \
         bytes arrive, and in tcp_wmem where they leave. braid net-check says which of them is too \
         small for a line.",
    );
    let near = small.bytes_per_second / expected(SMALL);
    report.goals.push(Goal {
        what: "bandwidth with the small window, against window / round trip".to_string(),
        paper: format!("{:.2}", PAPER_BEFORE * 1e6 / 8.0 / (SMALL as f64 / 0.03)),
        asked: format!("within {:.0} %", NEAR * 100.0),
        ours: format!("{near:.2}"),
        met: (near - 1.0).abs() <= NEAR,
    });
    let gain = large.bytes_per_second / small.bytes_per_second.max(1.0);
    let paper = PAPER_AFTER / PAPER_BEFORE;
    report.goals.push(Goal {
        what: "bandwidth with the large window against the small one".to_string(),
        paper: format!("{paper:.1}"),
        asked: format!("at least {paper:.0}"),
        ours: format!("{gain:.1}"),
        met: gain >= paper.floor(),
    });
    let named = found
        .iter()
        .any(|clamp| clamp.setting == "net.ipv4.tcp_rmem");
    report.goals.push(Goal {
        what: "the setting that clamps".to_string(),
        paper: "rmem_max, wmem_max".to_string(),
        asked: "named".to_string(),
        ours: found
            .iter()
            .map(|clamp| clamp.setting)
            .collect::<Vec<_>>()
            .join(", "),
        met: named && found.len() == 1,
    });
    report.figure("small_mbit", mbit(small.bytes_per_second));
    report.figure("large_mbit", mbit(large.bytes_per_second));
    report.figure("near", near);
    report.figure("gain", gain);
    Ok(report)
}
