//! `braid net-check`: how far away an instance is, what one connection to it carries, and which
//! settings of the kernel keep it from carrying more.
//!
//! One TCP connection has at most a window of bytes under way, so it carries at most window / round
//! trip, whatever the line could. The window grows up to the maxima of `tcp_rmem` at the end where
//! bytes arrive and `tcp_wmem` at the end where they leave.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use postgres::{Client, Config, NoTls};

use crate::Failure;
use crate::cli::NetCheckArgs;
use crate::control::{State, Status};
use crate::demo::session::told;
use crate::user;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Round trips of which the shortest counts: the others have had to wait for something.
const ROUND_TRIPS: u32 = 20;
/// How long bytes are fetched at least before their rate counts.
const LONG_ENOUGH: Duration = Duration::from_millis(700);
/// Bytes of a row that is fetched.
const ROW_BYTES: u64 = 8000;
/// Rows of the first fetch, and the most: half a gigabyte.
const FIRST_ROWS: u64 = 250;
const MOST_ROWS: u64 = 64_000;

/// What was measured of a line.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    pub round_trip: Duration,
    pub bytes_per_second: f64,
}

impl Measured {
    /// Bytes that were under way at a time.
    pub fn product(&self) -> f64 {
        self.bytes_per_second * self.round_trip.as_secs_f64()
    }
}

/// Buffers that the kernel of an end gives a connection at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// The maximum in `net.ipv4.tcp_rmem`.
    pub receive_max: u64,
    /// The maximum in `net.ipv4.tcp_wmem`.
    pub send_max: u64,
    /// Whether windows beyond 64 KiB are not negotiated (`net.ipv4.tcp_window_scaling` is 0).
    pub is_unscaled: bool,
}

/// A setting that keeps a connection from carrying what is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clamp {
    pub setting: &'static str,
    pub value: u64,
    /// What it lets through, in bytes a second.
    pub carries: f64,
    /// What it has to be at least.
    pub needed: u64,
}

impl fmt::Display for Clamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbit = self.carries * 8.0 / 1e6;
        let Clamp {
            setting,
            value,
            needed,
            ..
        } = self;
        match *setting {
            SCALING => write!(
                f,
                "{SCALING} is 0: windows end at 64 KiB, and a connection carries at most {mbit:.1} Mbit/s; set it to 1"
            ),
            _ => write!(
                f,
                "{setting}: its maximum of {value} bytes lets a connection carry at most {mbit:.1} Mbit/s; at least {needed} are needed"
            ),
        }
    }
}

const SCALING: &str = "net.ipv4.tcp_window_scaling";

impl Kernel {
    /// That of this machine.
    fn here() -> Result<Kernel, Failure> {
        let read = |name: &str| {
            let path = format!("/proc/sys/net/ipv4/{name}");
            std::fs::read_to_string(&path).map_err(|e| Failure(format!("{path}: {e}")))
        };
        let last = |name: &str| -> Result<u64, Failure> {
            let text = read(name)?;
            let value = text.split_whitespace().last().and_then(|n| n.parse().ok());
            value.ok_or_else(|| Failure(format!("{name} is not three numbers: {text}")))
        };
        Ok(Kernel {
            receive_max: last("tcp_rmem")?,
            send_max: last("tcp_wmem")?,
            is_unscaled: read("tcp_window_scaling")?.trim() == "0",
        })
    }

    /// Settings with which a connection over so long a line carries less than `wanted` bytes a
    /// second.
    pub fn clamps(&self, round_trip: Duration, wanted: f64) -> Vec<Clamp> {
        let seconds = round_trip.as_secs_f64();
        let needed = (wanted * seconds).ceil() as u64;
        let of = |setting, value| Clamp {
            setting,
            value,
            carries: value as f64 / seconds.max(1e-9),
            needed,
        };
        let all = [
            of("net.ipv4.tcp_rmem", self.receive_max),
            of("net.ipv4.tcp_wmem", self.send_max),
        ];
        let scaling = of(SCALING, 64 << 10);
        let scaling = Some(scaling).filter(|_| self.is_unscaled);
        let clamped = all.into_iter().chain(scaling);
        clamped.filter(|clamp| clamp.value < needed).collect()
    }
}

/// Measures the line to an instance, as this user or the default one.
pub fn measure(address: SocketAddr, user: Option<&str>) -> Result<Measured, Failure> {
    let mut client = connect(address, user)?;
    let failed = |e| Failure(format!("{address}: {}", told(&e)));
    let mut round_trip = Duration::MAX;
    for _ in 0..ROUND_TRIPS {
        let began = Instant::now();
        // A query of nothing: its answer needs no work.
        client.batch_execute("").map_err(failed)?;
        round_trip = round_trip.min(began.elapsed());
    }
    let mut rows = FIRST_ROWS;
    loop {
        let sql = format!("select repeat('x', {ROW_BYTES}) from generate_series(1, {rows})");
        let began = Instant::now();
        client.simple_query(&sql).map_err(failed)?;
        let took = began.elapsed().saturating_sub(round_trip);
        if took >= LONG_ENOUGH || rows >= MOST_ROWS {
            return Ok(Measured {
                round_trip,
                bytes_per_second: (rows * ROW_BYTES) as f64 / took.as_secs_f64().max(1e-6),
            });
        }
        rows = (rows * 4).min(MOST_ROWS);
    }
}

fn connect(address: SocketAddr, user: Option<&str>) -> Result<Client, Failure> {
    let mut config = Config::new();
    config
        .host(&address.ip().to_string())
        .port(address.port())
        .user(user.unwrap_or(&user::superuser()))
        .dbname("braid")
        .application_name("braid net-check")
        .connect_timeout(CONNECT_TIMEOUT);
    if let Ok(password) = std::env::var("PGPASSWORD") {
        config.password(password);
    }
    let failed = |e| Failure(format!("cannot connect to {address}: {}", told(&e)));
    config.connect(NoTls).map_err(failed)
}

pub fn run(args: &NetCheckArgs) -> Result<ExitCode, Failure> {
    let kernel = Kernel::here()?;
    let mut all = Vec::new();
    match &args.to {
        Some(to) => {
            let described = |e| Failure(format!("--to {to}: {e}"));
            let address = to.to_socket_addrs().map_err(described)?.next();
            let address = address.ok_or_else(|| Failure(format!("--to {to}: no address")))?;
            all.push((to.clone(), address));
        }
        None => {
            for s in Status::read_all(&args.data.data)? {
                if s.state == State::Open && s.is_running() {
                    all.push((format!("instance {}", s.instance), s.address));
                }
            }
        }
    }
    if all.is_empty() {
        let data = args.data.data.display();
        return Err(Failure(format!("no instance of {data} is open")));
    }
    let wanted = f64::from(args.bandwidth) * 1e6 / 8.0;
    let mut is_clamped = false;
    for (name, address) in &all {
        let line = measure(*address, args.user.as_deref())?;
        say!(
            "{name} ({address}): round trip {:.3} ms, one connection carries {:.1} Mbit/s, {:.0} \
             bytes under way",
            line.round_trip.as_secs_f64() * 1e3,
            line.bytes_per_second * 8.0 / 1e6,
            line.product()
        );
        let clamps = kernel.clamps(line.round_trip, wanted);
        is_clamped |= !clamps.is_empty();
        for clamp in &clamps {
            say!("  here: {clamp}");
        }
        if clamps.is_empty() {
            say!(
                "  here: the kernel's buffers are enough for {} Mbit/s over it",
                args.bandwidth
            );
        }
        if !address.ip().is_loopback() {
            say!(
                "  there: ask the same on that machine, with --to the address of this one's instance"
            );
        }
    }
    between(&all, args.user.as_deref())?;
    Ok(match is_clamped {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// What messages between instances have taken, as these have measured it.
fn between(all: &[(String, SocketAddr)], user: Option<&str>) -> Result<(), Failure> {
    let Some((_, address)) = all.first() else {
        return Ok(());
    };
    let mut client = connect(*address, user)?;
    let sql = "select inst_id, instance, sum(waits) filter (where part = 'total')::float8, \
               sum(time_waited_micro) filter (where part in ('message out', 'message back'))::float8 \
               from gv$gc_latency group by 1, 2 order by 1, 2";
    let failed = |e| Failure(format!("{address}: {}", told(&e)));
    for row in client.query(sql, &[]).map_err(failed)? {
        let (from, to): (i32, i32) = (row.get(0), row.get(1));
        let waits: f64 = row.get::<_, Option<f64>>(2).unwrap_or_default();
        let micros: f64 = row.get::<_, Option<f64>>(3).unwrap_or_default();
        if waits > 0.0 {
            say!(
                "instance {from} and instance {to}: {:.0} us for the two messages of {waits:.0} \
                 waits, on average",
                micros / waits
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings of the paper, before and after.
    #[test]
    fn settings_that_clamp_are_named() {
        let line = Duration::from_millis(30);
        let wanted = 186e6 / 8.0;
        let before = Kernel {
            receive_max: 174_760,
            send_max: 131_072,
            is_unscaled: false,
        };
        let found = before.clamps(line, wanted);
        let names: Vec<_> = found.iter().map(|c| c.setting).collect();
        assert_eq!(names, ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"]);
        let text = found[0].to_string();
        assert!(text.contains("46.6 Mbit/s; at least 697500"), "{text}");
        let after = Kernel {
            receive_max: 16 << 20,
            send_max: 16 << 20,
            is_unscaled: true,
        };
        let found = after.clamps(line, wanted);
        assert!(found[0].to_string().contains("set it to 1"), "{found:?}");
        // On a short line the same buffers are enough.
        assert!(before.clamps(Duration::from_micros(100), wanted).is_empty());
    }
}
