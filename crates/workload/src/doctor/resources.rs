//! Causes that are the machine's, or where on the machines the work is: processors, threads that
//! all wait for, the kernel's limits.

use std::collections::BTreeMap;

use super::causes::Event;
use super::{Cause, Finding};
use crate::document::{number, percent};
use crate::sections::cluster::Remote;
use crate::span::{Deltas, Span};
use crate::table::Error;

/// A counter by instance and name.
fn of(deltas: &Deltas, instance: &str, name: &str) -> f64 {
    let key = vec![instance.to_string(), name.to_string()];
    deltas.get(&key).copied().unwrap_or(0.0)
}

/// Sessions wait for a processor: of the machine, or only of an instance that has all the work.
pub fn processors(span: &Span) -> Result<Option<Finding>, Error> {
    match skewed_service(span)? {
        Some(finding) => Ok(Some(finding)),
        None => no_processor(span),
    }
}

/// How much busier an instance is than another one that could take some of its work.
const SKEWED: f64 = 4.0;
/// The part of a machine's processor time that must be idle to take work there.
const ROOM: f64 = 0.25;
/// The part of DB time for which sessions wait for a processor where there are too many.
const CROWDED: f64 = 0.2;

/// A service's sessions are at an instance whose processors do not suffice, while there is room at
/// another one.
fn skewed_service(span: &Span) -> Result<Option<Finding>, Error> {
    let keys = ["inst_id", "stat_name"];
    let times = span.delta("time_model", &keys, "value")?;
    let ticks = span.delta("osstat", &keys, "value")?;
    let db = |k: &str| of(&times, k, "DB time") / 1e6;
    let Some(busiest) = (span.instances.iter()).max_by(|a, b| db(a).total_cmp(&db(b))) else {
        return Ok(None);
    };
    let waited = of(&times, busiest, "run queue time") / 1e6;
    if waited < CROWDED * db(busiest) {
        return Ok(None);
    }
    let idle = |k: &str| {
        let (idle, busy) = (of(&ticks, k, "IDLE_TIME"), of(&ticks, k, "BUSY_TIME"));
        idle / (idle + busy + of(&ticks, k, "IOWAIT_TIME")).max(1.0)
    };
    let roomy = |k: &&String| db(k) * SKEWED < db(busiest) && idle(k) >= ROOM;
    let Some(other) = span.instances.iter().find(roomy) else {
        return Ok(None);
    };
    let mut services: Vec<(f64, &str)> = Vec::new();
    for row in span.at_end("service")? {
        if row.text("inst_id")? == busiest {
            services.push((row.number("sessions")?, row.text("service_name")?));
        }
    }
    services.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (sessions, name) = services
        .first()
        .copied()
        .unwrap_or((0.0, "(its sessions ended)"));
    Ok(Some(Finding {
        cause: Cause::SkewedService,
        title: "A service's sessions crowd one instance while another has room".to_string(),
        seconds: waited,
        instance: Some(busiest.clone()),
        subject: Some(format!("service {name}")),
        evidence: format!(
            "{} s of DB time at instance {busiest}, {} s of them runnable without a processor; {} s \
             at instance {other}, whose machine was idle for {} %; {} sessions of the service are \
             at instance {busiest}",
            number(db(busiest), 1),
            number(waited, 1),
            number(db(other), 1),
            percent(idle(other), 1.0),
            number(sessions, 0)
        ),
        remedy: format!(
            "Have the service run at instance {other} as well (braid service), and its clients \
             connect to both."
        ),
    }))
}

fn no_processor(span: &Span) -> Result<Option<Finding>, Error> {
    let seconds = span.time("run queue time")?;
    // Short waits for a processor are everybody's; a load that leaves none is another thing.
    let (share, cpu) = (seconds / span.db_time()?, span.time("DB CPU")?);
    Ok((share > 0.3 && seconds > cpu / 2.0).then(|| Finding {
        cause: Cause::NoProcessor,
        title: "Sessions wait for a processor".to_string(),
        seconds,
        instance: None,
        subject: None,
        evidence: format!(
            "{} s runnable without a processor, for {} s on one",
            number(seconds, 1),
            number(cpu, 1)
        ),
        remedy: "Give the machine to the database alone, add processors, or see SQL ordered by \
                 CPU Time."
            .to_string(),
    }))
}

/// How much longer than on a processor a thread of LMS is runnable without one, if it is starved.
const STARVED: f64 = 2.0;
/// The part of the span for which it must be so.
const STARVED_SHARE: f64 = 0.05;

/// Seconds that sessions wait for each instance when the span ends. A wait is counted when it ends,
/// and those for threads that never run do not.
fn under_way(span: &Span) -> Result<BTreeMap<String, f64>, Error> {
    let mut all = BTreeMap::new();
    for row in span.at_end("remote_wait")? {
        if row.text("event")?.starts_with("gc ") {
            let seconds = row.number("time_waited_micro")? / 1e6;
            let most = row.number("sessions")? * span.seconds();
            *all.entry(row.text("remote_instance")?.to_string())
                .or_default() += seconds.min(most);
        }
    }
    Ok(all)
}

/// How long threads were on a processor, and runnable without one, in seconds.
struct Scheduled {
    used: f64,
    waited: f64,
    /// So many are runnable when the span ends.
    runnable: f64,
}

impl Scheduled {
    fn lms_of(span: &Span, instance: &str) -> Result<Scheduled, Error> {
        let keys = ["inst_id", "pname"];
        let sum = |value: &str| -> Result<f64, Error> {
            let all = span.delta("process", &keys, value)?;
            let its = (all.iter()).filter(|(key, _)| key[0] == instance && is_lms(&key[1]));
            Ok(its.map(|(_, micros)| micros / 1e6).sum::<f64>())
        };
        let mut runnable = 0.0;
        for row in span.at_end("process")? {
            if row.text("inst_id")? == instance && is_lms(row.text("pname")?) {
                runnable += row.number("runnable")?;
            }
        }
        Ok(Scheduled {
            used: sum("cpu_used_micro")?,
            waited: sum("runnable_micro")?,
            runnable,
        })
    }

    /// The kernel counts the time without a processor when a thread gets one: a thread that never
    /// does is known by being runnable all the same, while others wait for it. `unserved`: for how
    /// many seconds by now.
    fn is_starved(&self, span: &Span, unserved: f64) -> bool {
        let least = STARVED_SHARE * span.seconds();
        let waited = self.waited >= STARVED * self.used && self.waited >= least;
        let never_ran = self.runnable > 0.0 && self.used + self.waited < least;
        waited || never_ran && unserved >= least
    }
}

/// The threads that serve blocks get no processor: every instance waits for that one.
pub fn starved_lms(span: &Span) -> Result<Option<Finding>, Error> {
    let remote = Remote::of(span)?;
    let under_way = under_way(span)?;
    let mut found: Option<Finding> = None;
    for k in &span.instances {
        let lms = Scheduled::lms_of(span, k)?;
        let unserved = under_way.get(k).copied().unwrap_or(0.0);
        if !lms.is_starved(span, unserved) {
            continue;
        }
        let (mut queued, mut waits) = (0.0, 0.0);
        for ((_, serves), parts) in remote.pairs() {
            if serves == *k {
                queued += parts.get("queue").map_or(0.0, |(_, seconds)| *seconds);
                waits += parts.get("total").map_or(0.0, |(waits, _)| *waits);
            }
        }
        let seconds = queued + unserved;
        if found.as_ref().is_some_and(|f| f.seconds >= seconds) || seconds <= 0.0 {
            continue;
        }
        found = Some(Finding {
            cause: Cause::StarvedLms,
            title: "The threads that serve blocks to other instances get no processor".to_string(),
            seconds,
            instance: Some(k.clone()),
            subject: Some("LMS".to_string()),
            evidence: format!(
                "they were runnable without a processor for {} s and on one for {} s; {} requests \
                 that instance {k} served lay there unread for {} ms on average, and those not \
                 served yet take {} s by now",
                number(lms.waited, 1),
                number(lms.used, 1),
                number(waits, 0),
                number(queued / waits.max(1.0) * 1000.0, 1),
                number(unserved, 1)
            ),
            remedy: "Set background_priority = realtime and let the system grant it (v$process \
                     shows what each thread got), give LMS processors of its own (lms_cpus), or \
                     take other programs off the machine."
                .to_string(),
        });
    }
    Ok(found)
}

fn is_lms(name: &str) -> bool {
    name.to_ascii_lowercase().starts_with("lms")
}

/// Bytes of a TCP buffer below which a long line cannot be filled. The kernel's own defaults are 4
/// MiB to send and 6 MiB to receive.
const LEAST_BUFFER: f64 = (1 << 20) as f64;

/// Statistics of `v$osstat`, the settings whose values they are, and the waits that a small one
/// makes long.
const LIMITS: [(&str, &str, &str); 2] = [
    (
        "TCP_SEND_SIZE_MAX",
        "net.ipv4.tcp_wmem",
        "SQL*Net more data to client",
    ),
    (
        "TCP_RECEIVE_SIZE_MAX",
        "net.ipv4.tcp_rmem",
        "SQL*Net more data from client",
    ),
];

/// Sessions wait for rows to go to their clients or to come from them, and the kernel's limits keep
/// the window small.
pub fn tcp_limits(span: &Span) -> Result<Option<Finding>, Error> {
    let events = Event::of(span)?;
    let mut found: Option<Finding> = None;
    for row in span.at_end("osstat")? {
        let (k, name) = (row.text("inst_id")?, row.text("stat_name")?);
        let Some((_, setting, event)) = LIMITS.iter().find(|(stat, ..)| *stat == name) else {
            continue;
        };
        let (bytes, (waits, seconds)) = (row.number("value")?, events.get(k, event));
        let is_more = found.as_ref().is_none_or(|f| seconds > f.seconds);
        // A system that does not say has no limit that is known.
        if bytes <= 0.0 || bytes >= LEAST_BUFFER || seconds <= 0.0 || !is_more {
            continue;
        }
        found = Some(Finding {
            cause: Cause::TcpLimits,
            title: "A limit of the kernel keeps TCP from filling the line".to_string(),
            seconds,
            instance: Some(k.to_string()),
            subject: Some(setting.to_string()),
            evidence: format!(
                "{} waits of {event} took {} s, and the last number of {setting} is {} bytes: over \
                 a round trip of 30 ms no more than {} MB a second",
                number(waits, 0),
                number(seconds, 1),
                number(bytes, 0),
                number(bytes / 0.03 / 1e6, 1)
            ),
            remedy: "Raise it with sysctl -w, here and on the clients' machines, to what the line \
                     carries in a round trip: bandwidth times round trip, 4 MiB for 1 Gbit/s over \
                     30 ms."
                .to_string(),
        });
    }
    Ok(found)
}
