//! The machines.

use std::collections::BTreeMap;

use crate::document::{Section, number, percent};
use crate::span::{Deltas, Span};
use crate::table::Error;

pub fn processors(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Host CPU",
        "Each instance's machine over the span. Instances of one machine show the same. A load \
         above the number of CPUs means that threads wait for one: see run queue time. Run queue \
         is how many threads ran or wanted to at the end.",
        &[
            "Inst",
            "CPUs",
            "Load End",
            "Run Queue End",
            "% User",
            "% System",
            "% WIO",
            "% Idle",
        ],
    );
    let ticks = span.delta("osstat", &["inst_id", "stat_name"], "value")?;
    let end = span.at_end("osstat")?;
    for instance in &span.instances {
        let over = |name: &str| {
            let key = vec![instance.clone(), name.to_string()];
            ticks.get(&key).copied().unwrap_or(0.0)
        };
        let last = |name: &str| -> Result<f64, Error> {
            for row in &end {
                if row.text("inst_id")? == instance && row.text("stat_name")? == name {
                    return row.number("value");
                }
            }
            Ok(0.0)
        };
        let all = over("BUSY_TIME") + over("IDLE_TIME") + over("IOWAIT_TIME");
        s.row([
            instance.clone(),
            number(last("NUM_CPUS")?, 0),
            number(last("LOAD")?, 2),
            number(last("RUNNABLE")?, 0),
            percent(over("USER_TIME") + over("NICE_TIME"), all),
            percent(over("SYS_TIME"), all),
            percent(over("IOWAIT_TIME"), all),
            percent(over("IDLE_TIME"), all),
        ]);
    }
    Ok(s)
}

/// The times of a processor, whose names end with its number.
const TIMES: [&str; 4] = ["USER_TIME", "SYS_TIME", "IOWAIT_TIME", "IDLE_TIME"];

pub fn each_processor(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Host CPU by Processor",
        "One that is busy while others idle has a thread, or an interrupt, that is bound to it: \
         see lms_cpus, lgwr_cpus and instance_cpus.",
        &["Inst", "CPU", "% User", "% System", "% WIO", "% Idle"],
    );
    let ticks = span.delta("osstat", &["inst_id", "stat_name"], "value")?;
    for ((instance, processor), times) in by_processor(&ticks) {
        let all: f64 = times.iter().sum();
        let shares = times.iter().map(|time| percent(*time, all));
        let head = [instance, processor.to_string()];
        s.row(head.into_iter().chain(shares));
    }
    Ok(s)
}

/// By instance and processor, in the order of [`TIMES`].
fn by_processor(ticks: &Deltas) -> BTreeMap<(String, u32), [f64; TIMES.len()]> {
    let mut all: BTreeMap<_, [f64; TIMES.len()]> = BTreeMap::new();
    for (key, value) in ticks {
        let Some((name, processor)) = key[1].split_once("_CPU") else {
            continue;
        };
        let at = TIMES.iter().position(|time| *time == name);
        if let (Some(at), Ok(processor)) = (at, processor.parse()) {
            all.entry((key[0].clone(), processor)).or_default()[at] += value;
        }
    }
    all
}
