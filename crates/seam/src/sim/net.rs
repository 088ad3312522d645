//! The network between simulated processes: connections that keep order, delay, fill up, break, and
//! may be cut.
//!
//! It is like TCP. What was sent arrives in order or not at all. A connection can be made before
//! anybody accepts it. A killed process closes its connections, and some of what was on the way may
//! be lost. During a cut nothing arrives and nobody is told. A connection lives on through a cut of
//! any length, because the kernel's own limits are longer than those of the engine.

use super::scheduler::{Key, Scheduler, Woken};
use super::{Process, Task, of_simulation};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Default)]
pub(super) struct Net {
    last: u64,
    last_port: u16,
    listeners: BTreeMap<u16, Listening>,
    connections: BTreeMap<u64, Connection>,
    /// The cut pairs of processes, the lower one first.
    cuts: BTreeSet<(Process, Process)>,
    habits: Option<Habits>,
}

/// The habits of the network in this run.
#[derive(Clone, Copy)]
struct Habits {
    delay_us: u64,
    capacity: usize,
}

struct Listening {
    process: Process,
    /// The connections to be accepted, and from when on.
    waiting: VecDeque<(u64, u64)>,
}

struct Connection {
    processes: [Process; 2],
    ends: [End; 2],
}

/// What one end of a connection receives.
#[derive(Default)]
struct End {
    on_the_way: VecDeque<Chunk>,
    bytes: usize,
    /// When this end notices the other end's closing.
    end_at: Option<u64>,
    /// Whether the closing is noticed as an error, before what is on the way.
    broken: bool,
    /// Whether this end was closed by its own process.
    closed: bool,
}

struct Chunk {
    at: u64,
    bytes: Vec<u8>,
    used: usize,
}

/// The time at which what is cut off arrives.
const NOT_YET: u64 = u64::MAX;
const FIRST_PORT: u16 = 20_000;

impl Net {
    fn habits(&mut self, scheduler: &mut Scheduler) -> Habits {
        *self.habits.get_or_insert_with(|| Habits {
            delay_us: [30, 200, 2_000][scheduler.random.below(3) as usize],
            capacity: [16 << 10, 256 << 10, 4 << 20][scheduler.random.below(3) as usize],
        })
    }

    fn delay_ns(&mut self, scheduler: &mut Scheduler) -> u64 {
        let most = match scheduler.random.one_in(200) {
            true => 30_000,
            false => self.habits(scheduler).delay_us,
        };
        1_000 * (5 + scheduler.random.below(most))
    }

    fn is_cut(&self, a: Process, b: Process) -> bool {
        self.cuts.contains(&(a.min(b), a.max(b)))
    }

    /// Ends what `by` sends on a connection. If `losing`, what is on the way is lost.
    fn close(&mut self, scheduler: &mut Scheduler, number: u64, by: usize, losing: bool) {
        let delay = self.delay_ns(scheduler);
        let Some(c) = self.connections.get_mut(&number) else {
            return;
        };
        let cut = self.cuts.contains(&(
            c.processes[0].min(c.processes[1]),
            c.processes[0].max(c.processes[1]),
        ));
        let [mine, other] = if by == 0 { [0, 1] } else { [1, 0] };
        if c.ends[mine].closed {
            return;
        }
        c.ends[mine].closed = true;
        let other = &mut c.ends[other];
        let last = other.on_the_way.back().map_or(0, |chunk| chunk.at);
        other.end_at = Some(match cut {
            true => NOT_YET,
            false => last.max(scheduler.now_ns + delay),
        });
        if losing {
            other
                .on_the_way
                .retain(|chunk| chunk.at <= scheduler.now_ns);
            other.bytes = other.on_the_way.iter().map(Chunk::left).sum();
            other.broken = true;
        }
        let is_over = c.ends.iter().all(|e| e.closed);
        wake(scheduler, number);
        if is_over {
            self.connections.remove(&number);
        }
    }
}

impl Chunk {
    fn left(&self) -> usize {
        self.bytes.len() - self.used
    }
}

impl End {
    fn next_event(&self) -> Option<u64> {
        let chunk = self.on_the_way.front().map(|c| c.at);
        [chunk, self.end_at]
            .into_iter()
            .flatten()
            .filter(|at| *at != NOT_YET)
            .min()
    }
}

fn wake(scheduler: &mut Scheduler, connection: u64) {
    scheduler.wake(Key::Network(2 * connection), true);
    scheduler.wake(Key::Network(2 * connection + 1), true);
}

/// The key of a port: ports have numbers of their own among what is waited for.
fn port_key(port: u16) -> Key {
    Key::Network(u64::MAX - u64::from(port))
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Ends the connections and ports of a killed process.
pub(super) fn process_killed(me: Task, process: Process) {
    let mut scheduler = me.world.scheduler.lock();
    let mut net = me.world.net.lock();
    net.listeners.retain(|_, l| l.process != process);
    let of_process: Vec<(u64, usize)> = net
        .connections
        .iter()
        .flat_map(|(&number, c)| {
            [(number, 0), (number, 1)].map(|(n, end)| (n, end, c.processes[end]))
        })
        .filter(|(_, _, p)| *p == process)
        .map(|(number, end, _)| (number, end))
        .collect();
    for (number, end) in of_process {
        let losing = scheduler.random.one_in(2);
        net.close(&mut scheduler, number, end, losing);
    }
}

/// Cuts two processes off: from now on nothing arrives between them, what is on the way included.
pub fn cut(a: Process, b: Process) {
    let me = of_simulation();
    {
        let scheduler = me.world.scheduler.lock();
        let mut net = me.world.net.lock();
        net.cuts.insert((a.min(b), a.max(b)));
        let now = scheduler.now_ns;
        for c in between(&mut net, a, b) {
            for end in &mut c.ends {
                let late = end.on_the_way.iter_mut().filter(|chunk| chunk.at > now);
                late.for_each(|chunk| chunk.at = NOT_YET);
                end.end_at = end.end_at.map(|at| if at > now { NOT_YET } else { at });
            }
        }
    }
    me.point();
}

/// Ends a cut: what was held back arrives.
pub fn heal(a: Process, b: Process) {
    let me = of_simulation();
    {
        let mut scheduler = me.world.scheduler.lock();
        let mut net = me.world.net.lock();
        net.cuts.remove(&(a.min(b), a.max(b)));
        let at = scheduler.now_ns + net.delay_ns(&mut scheduler);
        let mut numbers = Vec::new();
        for (&number, c) in &mut net.connections {
            if !is_between(c, a, b) {
                continue;
            }
            numbers.push(number);
            for end in &mut c.ends {
                let held = end
                    .on_the_way
                    .iter_mut()
                    .filter(|chunk| chunk.at == NOT_YET);
                held.for_each(|chunk| chunk.at = at);
                end.end_at = end.end_at.map(|e| if e == NOT_YET { at } else { e });
            }
        }
        numbers.into_iter().for_each(|n| wake(&mut scheduler, n));
        scheduler.wake(Key::Network(0), true);
    }
    me.point();
}

/// Breaks all connections between two processes. They may be made anew.
pub fn break_connections(a: Process, b: Process) {
    let me = of_simulation();
    {
        let mut scheduler = me.world.scheduler.lock();
        let mut net = me.world.net.lock();
        let numbers: Vec<u64> = net
            .connections
            .iter()
            .filter(|(_, c)| is_between(c, a, b))
            .map(|(&number, _)| number)
            .collect();
        for number in numbers {
            if let Some(c) = net.connections.get_mut(&number) {
                for end in &mut c.ends {
                    end.on_the_way.clear();
                    end.bytes = 0;
                    end.broken = true;
                    end.end_at = Some(scheduler.now_ns);
                }
            }
            wake(&mut scheduler, number);
        }
    }
    me.point();
}

fn is_between(c: &Connection, a: Process, b: Process) -> bool {
    c.processes == [a, b] || c.processes == [b, a]
}

fn between(net: &mut Net, a: Process, b: Process) -> impl Iterator<Item = &mut Connection> {
    net.connections
        .values_mut()
        .filter(move |c| is_between(c, a, b))
}

/// A listening port.
pub struct Listener {
    task: Task,
    port: u16,
}

impl Listener {
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        let task = of_simulation();
        let process = task.process();
        let port = {
            let mut net = task.world.net.lock();
            let port = match address.port() {
                0 => {
                    net.last_port += 1;
                    FIRST_PORT + net.last_port
                }
                port => port,
            };
            if net.listeners.contains_key(&port) {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            let listening = Listening {
                process,
                waiting: VecDeque::new(),
            };
            net.listeners.insert(port, listening);
            port
        };
        task.point();
        Ok(Listener { task, port })
    }

    pub fn local_addr(&self) -> SocketAddr {
        local(self.port)
    }

    /// Waits for a connection. It is an error once the port does not listen any more.
    pub fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        let me = of_simulation();
        me.point();
        loop {
            let until = {
                let scheduler = me.world.scheduler.lock();
                let mut net = me.world.net.lock();
                let Some(l) = net.listeners.get_mut(&self.port) else {
                    return Err(io::ErrorKind::InvalidInput.into());
                };
                match l.waiting.front().copied() {
                    Some((at, number)) if at <= scheduler.now_ns => {
                        l.waiting.pop_front();
                        let socket = Socket::of(me, number, 1);
                        return Ok((socket, local(40_000 + (number % 20_000) as u16)));
                    }
                    next => next.map(|(at, _)| at),
                }
            };
            me.block_until(port_key(self.port), until);
        }
    }

    pub fn close(&self) {
        let mut scheduler = self.task.world.scheduler.lock();
        self.task.world.net.lock().listeners.remove(&self.port);
        scheduler.wake(port_key(self.port), true);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}

/// One end of a connection. Clones share it; when the last one goes, the end is closed.
#[derive(Clone)]
pub struct Socket(Arc<Held>);

struct Held {
    task: Task,
    connection: u64,
    end: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut scheduler = self.task.world.scheduler.lock();
        let mut net = self.task.world.net.lock();
        net.close(&mut scheduler, self.connection, self.end, false);
    }
}

impl Socket {
    fn of(task: Task, connection: u64, end: usize) -> Socket {
        Socket(Arc::new(Held {
            task,
            connection,
            end,
        }))
    }

    pub fn connect(address: SocketAddr, timeout: Duration) -> io::Result<Socket> {
        let me = of_simulation();
        let process = me.process();
        let deadline = me.world.scheduler.lock().now_ns + timeout.as_nanos() as u64;
        loop {
            let (delay, number) = {
                let mut scheduler = me.world.scheduler.lock();
                let mut net = me.world.net.lock();
                let delay = net.delay_ns(&mut scheduler);
                match net.listeners.get(&address.port()).map(|l| l.process) {
                    None => (delay, None),
                    Some(other) if net.is_cut(process, other) => {
                        drop((net, scheduler));
                        if me.block_until(Key::Network(0), Some(deadline)) == Woken::TooLate {
                            return Err(io::ErrorKind::TimedOut.into());
                        }
                        continue;
                    }
                    Some(other) => {
                        net.last += 1;
                        let number = net.last;
                        let connection = Connection {
                            processes: [process, other],
                            ends: Default::default(),
                        };
                        net.connections.insert(number, connection);
                        let at = scheduler.now_ns + delay;
                        let l = net.listeners.get_mut(&address.port());
                        let l = l.expect("invariant: just seen, under the same latch");
                        l.waiting.push_back((at, number));
                        scheduler.wake(port_key(address.port()), true);
                        (delay, Some(number))
                    }
                }
            };
            me.sleep(Duration::from_nanos(delay));
            return match number {
                Some(number) => Ok(Socket::of(me, number, 0)),
                None => Err(io::ErrorKind::ConnectionRefused.into()),
            };
        }
    }

    fn receive_key(&self) -> Key {
        Key::Network(2 * self.0.connection + self.0.end as u64)
    }
    fn send_key(&self) -> Key {
        Key::Network(2 * self.0.connection + 1 - self.0.end as u64)
    }

    /// Sends what there is room for, without waiting, and returns the number of bytes: zero if
    /// there is no room.
    pub fn send(&self, parts: &[&[u8]]) -> io::Result<usize> {
        let me = of_simulation();
        let sent = self.send_now(me, parts);
        me.point();
        sent
    }

    fn send_now(&self, me: Task, parts: &[&[u8]]) -> io::Result<usize> {
        let mut scheduler = me.world.scheduler.lock();
        let mut net = me.world.net.lock();
        let delay = net.delay_ns(&mut scheduler);
        let capacity = net.habits(&mut scheduler).capacity;
        let Net {
            connections, cuts, ..
        } = &mut *net;
        let Some(c) = connections.get_mut(&self.0.connection) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let [a, b] = c.processes;
        let is_cut = cuts.contains(&(a.min(b), a.max(b)));
        let mine = &c.ends[self.0.end];
        let told = mine.end_at.is_some_and(|at| at <= scheduler.now_ns);
        if mine.closed || told {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let other = &mut c.ends[1 - self.0.end];
        let mut room = capacity.saturating_sub(other.bytes);
        let mut bytes = Vec::new();
        for part in parts {
            let taken = room.min(part.len());
            bytes.extend_from_slice(&part[..taken]);
            room -= taken;
        }
        let sent = bytes.len();
        if sent == 0 {
            return Ok(0);
        }
        other.bytes += sent;
        let last = other.on_the_way.back().map_or(0, |chunk| chunk.at);
        let at = match is_cut {
            true => NOT_YET,
            false => last.max(scheduler.now_ns + delay),
        };
        other.on_the_way.push_back(Chunk { at, bytes, used: 0 });
        scheduler.wake(self.send_key(), true);
        Ok(sent)
    }

    /// Waits for bytes and takes what is there; zero at the end. The second number is how long they
    /// had been there, in nanoseconds.
    pub fn receive(&self, to: &mut [u8], until: Option<Instant>) -> io::Result<(usize, u64)> {
        let me = of_simulation();
        let until = until.map(|u| me.moment(u));
        me.point();
        loop {
            let next = {
                let mut scheduler = me.world.scheduler.lock();
                let mut net = me.world.net.lock();
                let now = scheduler.now_ns;
                let Some(c) = net.connections.get_mut(&self.0.connection) else {
                    return Ok((0, 0));
                };
                let mine = &mut c.ends[self.0.end];
                if mine.closed {
                    return Ok((0, 0));
                }
                if let Some(chunk) = mine.on_the_way.front_mut().filter(|c| c.at <= now) {
                    let n = chunk.left().min(to.len());
                    to[..n].copy_from_slice(&chunk.bytes[chunk.used..chunk.used + n]);
                    chunk.used += n;
                    let age = now - chunk.at;
                    if chunk.left() == 0 {
                        mine.on_the_way.pop_front();
                    }
                    mine.bytes -= n;
                    scheduler.wake(self.send_key(), true);
                    return Ok((n, age));
                }
                if mine.end_at.is_some_and(|at| at <= now) {
                    return match mine.broken {
                        true => Err(io::ErrorKind::ConnectionReset.into()),
                        false => Ok((0, 0)),
                    };
                }
                if until.is_some_and(|u| u <= now) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                [mine.next_event(), until].into_iter().flatten().min()
            };
            me.block_until(self.receive_key(), next);
        }
    }

    /// Sends all bytes, and waits for room.
    pub fn send_all(&self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        let me = of_simulation();
        while !bytes.is_empty() {
            let sent = self.send(&[bytes])?;
            bytes = &bytes[sent..];
            if sent == 0 && me.block(self.send_key(), Some(until)) == Woken::TooLate {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Ends the connection in both directions.
    pub fn close(&self) {
        let task = self.0.task;
        let mut scheduler = task.world.scheduler.lock();
        let mut net = task.world.net.lock();
        net.close(&mut scheduler, self.0.connection, self.0.end, false);
    }

    /// Whether bytes have arrived that nobody has read.
    pub fn has_unread(&self) -> bool {
        let task = self.0.task;
        let scheduler = task.world.scheduler.lock();
        let net = task.world.net.lock();
        net.connections.get(&self.0.connection).is_some_and(|c| {
            let first = c.ends[self.0.end].on_the_way.front();
            first.is_some_and(|chunk| chunk.at <= scheduler.now_ns)
        })
    }
}
