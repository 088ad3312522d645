//! Measures how long a block takes from another process: 64 bytes out, 8 KiB back, over the
//! interconnect and over a bare TCP connection, in one run.
//!
//! `cargo run --release -p interconnect --example ping [-- calls-per-round]`
//!
//! `PING_PRIORITY` is one of real-time, nice, short-slice, ordinary. `PING_APART` keeps the two
//! processes on CPUs of their own. `PING_TLS` is a directory with certificates for instances 1 and
//! 2.

use block::{BlockBuf, InstanceId, Scn};
use interconnect::{
    Arrival, Ask, Block, Body, Bound, Clock, Cluster, Config, Interconnect, Lane, Member,
    PeerAddress, Secret, Served, Service,
};
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;
use wait::Event;
use wait::priority::Priority;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ROUNDS: usize = 7;
const OUT_BYTES: usize = 64;

struct NoClock;

impl Clock for NoClock {
    fn now(&self) -> Scn {
        Scn(1)
    }
    fn lift(&self, _: Scn) -> std::result::Result<(), String> {
        Ok(())
    }
}

/// Answers every request with a block.
struct Blocks(Box<BlockBuf>);

impl Service for Blocks {
    fn handle(&self, ic: &Interconnect, arrival: &Arrival<'_>, _: Block<'_>) {
        let Some(to) = arrival.reply_to() else { return };
        let body = Body {
            message: &[],
            block: &self.0.0,
        };
        if let Err(e) = ic.reply(&to, 2, 0, Served::default(), body) {
            eprintln!("ping: {e}");
        }
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    if std::env::var_os("PING_APART").is_some() {
        // Threads inherit the CPU.
        let cpu = usize::from(args.get(1).is_some_and(|a| a == "serve"));
        println!("{}", wait::priority::apply(Priority::Ordinary, &[cpu]));
    }
    match args.get(1).map(String::as_str) {
        Some("serve") => serve(),
        Some(n) => measure(n.parse()?),
        None => measure(3000),
    }
}

fn member(instance: u16) -> Member {
    Member {
        instance: InstanceId(instance),
        incarnation: 1,
    }
}

fn start(instance: u16, bound: Bound, peers: Vec<PeerAddress>) -> Result<Interconnect> {
    let cluster = Cluster {
        database: 1,
        incarnation: 1,
    };
    let secret = Secret::new(b"a secret of this measurement")?;
    let mut config = Config::new(cluster, member(instance), secret);
    config.peers = peers;
    if let Ok(tls) = std::env::var("PING_TLS") {
        config.tls = Some(interconnect::certs::TlsFiles::in_directory(
            tls.as_ref(),
            InstanceId(instance),
        ));
        config.tls_on_loopback = true;
    }
    config.priority = match std::env::var("PING_PRIORITY").as_deref() {
        Err(_) => config.priority,
        Ok("real-time") => Priority::RealTime,
        Ok("nice") => Priority::Nice,
        Ok("short-slice") => Priority::ShortSlice,
        Ok("ordinary") => Priority::Ordinary,
        Ok(other) => return Err(format!("no priority {other}").into()),
    };
    let service = Arc::new(Blocks(BlockBuf::zeroed()));
    Ok(Interconnect::start(
        config,
        bound,
        service,
        Arc::new(NoClock),
    )?)
}

/// The other process: instance 1, and a bare echo.
fn serve() -> Result<()> {
    let loopback: SocketAddr = "127.0.0.1:0".parse()?;
    let bound = Bound::bind(loopback)?;
    let raw = TcpListener::bind(loopback)?;
    println!("{} {}", bound.address(), raw.local_addr()?);
    let nowhere = PeerAddress {
        instance: InstanceId(2),
        address: "127.0.0.1:1".parse()?,
    };
    let _interconnect = start(1, bound, vec![nowhere])?;
    let (mut socket, _) = raw.accept()?;
    socket.set_nodelay(true)?;
    let (mut question, answer) = ([0; OUT_BYTES], [0; block::BLOCK_SIZE]);
    while socket.read_exact(&mut question).is_ok() {
        socket.write_all(&answer)?;
    }
    Ok(())
}

fn measure(calls: usize) -> Result<()> {
    let mut server = Command::new(std::env::current_exe()?)
        .arg("serve")
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    let out = server.stdout.take().ok_or("no output")?;
    let mut out = BufReader::new(out);
    while !said.starts_with("127.") {
        said.clear();
        out.read_line(&mut said)?;
    }
    let mut addresses = said.split_whitespace().map(str::parse::<SocketAddr>);
    let mut address = || addresses.next().ok_or("an address is missing");
    let (there, raw) = (address()??, address()??);
    let peer = PeerAddress {
        instance: InstanceId(1),
        address: there,
    };
    let ic = start(2, Bound::bind("127.0.0.1:0".parse()?)?, vec![peer])?;
    while ic.connected(InstanceId(1)).is_none() {
        std::thread::yield_now();
    }
    for t in ic.threads() {
        println!("{:8} {}", t.name, t.got);
    }
    let mut socket = TcpStream::connect(raw)?;
    socket.set_nodelay(true)?;

    let (mut bare, mut ours, mut parts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut answer = [0; block::BLOCK_SIZE];
        for _ in 0..calls {
            let t = Instant::now();
            socket.write_all(&[1; OUT_BYTES])?;
            socket.read_exact(&mut answer)?;
            bare.push(t.elapsed().as_nanos() as u64);
        }
        let mut landing: Option<Box<dyn interconnect::Landing>> =
            Some(Box::new(BlockBuf::zeroed()));
        for _ in 0..calls {
            let t = Instant::now();
            let reply = ic.call(
                member(1),
                Lane::lms(0),
                Ask {
                    kind: 1,
                    epoch: 0,
                    body: Body::message(&[1; OUT_BYTES]),
                    landing: landing.take(),
                    event: Event::GcCrRequest,
                    params: [0; 3],
                    charge: &|_, _| Event::GcCrBlock2Way,
                    deadline: None,
                },
            )?;
            ours.push(t.elapsed().as_nanos() as u64);
            parts.push(reply.provenance);
            match reply.block {
                Block::Landed(l) => landing = Some(l),
                _ => return Err("no block came".into()),
            }
        }
    }
    drop(socket);
    server.wait()?;
    report(bare, ours, &parts);
    ic.stop();
    Ok(())
}

fn report(mut bare: Vec<u64>, mut ours: Vec<u64>, parts: &[interconnect::Provenance]) {
    bare.sort_unstable();
    ours.sort_unstable();
    let at = |v: &[u64], p: f64| v[((v.len() - 1) as f64 * p) as usize] as f64 / 1000.0;
    println!(
        "64 bytes out, 8 KiB back, {} calls each, microseconds",
        ours.len()
    );
    println!("{:14} {:>8} {:>8} {:>8}", "", "p50", "p90", "p99");
    for (name, v) in [("bare TCP", &bare), ("interconnect", &ours)] {
        println!(
            "{name:14} {:8.1} {:8.1} {:8.1}",
            at(v, 0.5),
            at(v, 0.9),
            at(v, 0.99)
        );
    }
    println!("ratio of p50: {:.2}", at(&ours, 0.5) / at(&bare, 0.5));
    let middle = |f: fn(&interconnect::Provenance) -> u64| {
        let mut v: Vec<u64> = parts.iter().map(f).collect();
        v.sort_unstable();
        at(&v, 0.5)
    };
    println!(
        "parts, p50: out {:.1}, served {:.1}, back {:.1}, wake {:.1}",
        middle(|p| p.out_ns),
        middle(|p| p.queue_ns + p.other_ns),
        middle(|p| p.back_ns),
        middle(|p| p.wake_ns)
    );
}
