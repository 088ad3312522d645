//! The machines.

use crate::document::{Section, number, percent};
use crate::span::Span;
use crate::table::Error;

pub fn processors(span: &Span) -> Result<Section, Error> {
    let mut s = Section::new(
        "Host CPU",
        "Each instance's machine over the span. Instances of one machine show the same. A load \
         above the number of CPUs means that threads wait for one: see run queue time.",
        &[
            "Inst", "CPUs", "Load End", "% User", "% System", "% WIO", "% Idle",
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
            percent(over("USER_TIME") + over("NICE_TIME"), all),
            percent(over("SYS_TIME"), all),
            percent(over("IOWAIT_TIME"), all),
            percent(over("IDLE_TIME"), all),
        ]);
    }
    Ok(s)
}
