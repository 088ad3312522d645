//! The metrics endpoint: an instance's counters in Prometheus' text format, over HTTP.
//!
//! Off unless `metrics_port` is set, and on the loopback address unless `metrics_address` says
//! otherwise. There are no texts of statements and no names of users in it. The thread `metrics`
//! answers one scraper after the other.
//!
//! **Invariant.** Who sends nothing, too much or slowly is let go after [`PATIENCE`], and keeps
//! nobody but other scrapers waiting.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use wait::session::{Kind, State};
use wait::{Event, time_model, views};

const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a request's head that are read; a scraper sends a few hundred.
const REQUEST_BYTES: usize = 8 << 10;

/// Events whose durations are told in a histogram: what commits, reads and transfers wait for.
const HISTOGRAMS: [Event; 6] = [
    Event::LogFileSync,
    Event::LogFileParallelWrite,
    Event::DbFileSequentialRead,
    Event::GcCrBlock2Way,
    Event::GcCurrentBlock2Way,
    Event::EnqTx,
];

/// Begins to answer at this address. The thread ends with the process.
pub fn serve(address: SocketAddr, instance: u16) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    std::thread::Builder::new()
        .name("metrics".into())
        .spawn(move || {
            for client in listener.incoming() {
                // A scraper that goes away has its own log.
                let _ = client.and_then(|client| answer(client, instance));
            }
        })?;
    Ok(bound)
}

fn answer(mut client: TcpStream, instance: u16) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let (status, body) = match request(&mut client)?.as_deref() {
        Some("/metrics") => ("200 OK", metrics(instance)),
        Some(_) => ("404 Not Found", "metrics are at /metrics\n".to_string()),
        None => ("400 Bad Request", "only GET is answered\n".to_string()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}

/// The path that is asked for; none if it is no GET.
fn request(client: &mut TcpStream) -> io::Result<Option<String>> {
    let until = std::time::Instant::now() + PATIENCE;
    let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        let read = client.read(&mut buffer)?;
        head.extend_from_slice(&buffer[..read]);
        if read == 0 || head.len() > REQUEST_BYTES || std::time::Instant::now() > until {
            return Ok(None);
        }
    }
    let line = String::from_utf8_lossy(&head);
    let mut words = line.split_whitespace();
    let is_get = words.next() == Some("GET");
    Ok(words.next().filter(|_| is_get).map(str::to_string))
}

/// A metric's head, then its values.
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.0, "{name}");
        for (at, (label, of)) in labels.iter().enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            let of = of
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(self.0, "{open}{label}=\"{of}\"");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }
}

fn metrics(instance: u16) -> String {
    let mut t = Text(String::new());
    t.head(
        "braid_instance_info",
        "gauge",
        "The instance and its version.",
    );
    let number = instance.to_string();
    let version = env!("CARGO_PKG_VERSION");
    t.value(
        "braid_instance_info",
        &[("number", &number), ("version", version)],
        1.0,
    );
    sessions(&mut t);
    times(&mut t);
    waits(&mut t);
    remote(&mut t);
    t.head(
        "braid_stat_total",
        "counter",
        "Statistics of v$sysstat, by name.",
    );
    for (stat, value) in views::system_stats() {
        t.value("braid_stat_total", &[("name", stat.name())], value as f64);
    }
    t.0
}

fn sessions(t: &mut Text) {
    t.head("braid_sessions", "gauge", "Sessions of users, by state.");
    let all = views::sessions();
    for (state, name) in [
        (State::Active, "active"),
        (State::Idle, "idle"),
        (State::InTransaction, "idle in transaction"),
        (State::Failed, "idle in transaction (aborted)"),
    ] {
        let of = |s: &&std::sync::Arc<wait::session::Session>| {
            s.kind == Kind::User && s.state() == state
        };
        let n = all.iter().filter(of).count();
        t.value("braid_sessions", &[("state", name)], n as f64);
    }
}

fn times(t: &mut Text) {
    let (user, background) = time_model::of_instance();
    let seconds = |us: u64| us as f64 / 1e6;
    let name = "braid_db_time_seconds_total";
    t.head(
        name,
        "counter",
        "Time of users' sessions in calls, by what it went to; DB time is the sum.",
    );
    for (part, us) in [
        ("cpu", user.cpu_us),
        ("wait", user.waits_us),
        ("runnable", user.runnable_us),
        ("unaccounted", user.unaccounted_us),
    ] {
        t.value(name, &[("part", part)], seconds(us));
    }
    let name = "braid_cpu_seconds_total";
    t.head(name, "counter", "Processor time, by kind of session.");
    t.value(name, &[("kind", "user")], seconds(user.all_cpu_us()));
    t.value(
        name,
        &[("kind", "background")],
        seconds(background.all_cpu_us()),
    );
}

fn waits(t: &mut Text) {
    let events = views::system_events();
    let labels = |e: Event| [("event", e.name()), ("class", e.class().name())];
    t.head(
        "braid_waits_total",
        "counter",
        "Waits that have ended, by event.",
    );
    for row in &events {
        t.value(
            "braid_waits_total",
            &labels(row.all.event),
            row.all.waits as f64,
        );
    }
    t.head(
        "braid_wait_seconds_total",
        "counter",
        "Time of these waits.",
    );
    for row in &events {
        t.value(
            "braid_wait_seconds_total",
            &labels(row.all.event),
            row.all.time_us as f64 / 1e6,
        );
    }
    let name = "braid_wait_duration_seconds";
    t.head(
        name,
        "histogram",
        "How long single waits were, of some events.",
    );
    let buckets = views::event_histogram();
    for event in HISTOGRAMS {
        let of = events.iter().find(|row| row.all.event == event);
        let Some(of) = of else {
            continue;
        };
        let mut below = 0;
        for bucket in buckets.iter().filter(|b| b.event == event) {
            below += bucket.waits;
            let limit = (bucket.below_us as f64 / 1e6).to_string();
            let labels = [("event", event.name()), ("le", &limit)];
            t.value(&format!("{name}_bucket"), &labels, below as f64);
        }
        let labels = [("event", event.name()), ("le", "+Inf")];
        t.value(&format!("{name}_bucket"), &labels, below as f64);
        let event = [("event", event.name())];
        t.value(&format!("{name}_sum"), &event, of.all.time_us as f64 / 1e6);
        t.value(&format!("{name}_count"), &event, below as f64);
    }
}

fn remote(t: &mut Text) {
    let name = "braid_gc_wait_seconds_total";
    t.head(
        name,
        "counter",
        "Waits that another instance ended, by that instance, event and part.",
    );
    for row in wait::remote::latencies() {
        let instance = row.instance.to_string();
        for (part, sum) in wait::remote::Part::ALL.iter().zip(&row.parts) {
            let labels = [
                ("serving", instance.as_str()),
                ("event", row.event.name()),
                ("part", part.name()),
            ];
            t.value(name, &labels, sum.time_ns as f64 / 1e9);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_quoted() {
        let mut t = Text(String::new());
        t.value("a", &[("b", "x\"\\\n"), ("c", "y")], 1.5);
        t.value("d", &[], 2.0);
        assert_eq!(t.0, "a{b=\"x\\\"\\\\\\n\",c=\"y\"} 1.5\nd 2\n");
    }

    /// Every metric of the dashboard, and every statistic that it names, is one that is told.
    #[test]
    fn the_dashboard_asks_for_what_there_is() {
        let told = metrics(1);
        let file = std::fs::read_to_string("../../docs/grafana.json").unwrap();
        let dashboard: serde_json::Value = serde_json::from_str(&file).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let targets = panels
            .iter()
            .filter_map(|p| p["targets"].as_array())
            .flatten();
        let asked: Vec<&str> = targets.map(|t| t["expr"].as_str().unwrap()).collect();
        assert!(asked.len() >= 8, "{asked:?}");
        for query in asked {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let words = query.split(|c| !is_part(c));
            for metric in words.filter(|word| word.starts_with("braid_")) {
                let metric = metric.trim_end_matches("_bucket");
                assert!(told.contains(&format!("# TYPE {metric} ")), "{metric}");
            }
            let Some((_, names)) = query.split_once("name=~\"") else {
                continue;
            };
            for name in names.split('"').next().unwrap().split('|') {
                assert!(told.contains(&format!("{{name=\"{name}\"}}")), "{name}");
            }
        }
    }

    #[test]
    fn scrapers_are_answered_and_others_let_go() {
        let address = serve(([127, 0, 0, 1], 0).into(), 3).unwrap();
        let ask = |request: &str| {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(request.as_bytes()).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            answer
        };
        let metrics = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
        for part in [
            "# TYPE braid_db_time_seconds_total counter\n",
            "braid_instance_info{number=\"3\",",
            "braid_stat_total{name=\"user commits\"} ",
        ] {
            assert!(metrics.contains(part), "{part} in {metrics}");
        }
        assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400"));
        assert!(ask("GET /metrics").starts_with("HTTP/1.1 400"));
        assert!(ask(&"x".repeat(REQUEST_BYTES - 4)).starts_with("HTTP/1.1 400"));
    }
}
