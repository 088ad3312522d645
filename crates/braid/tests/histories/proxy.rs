//! The proxy between instances. It passes connections on, slowly or not at all, or breaks them,
//! separately for each pair of instances and each direction.
//!
//! The higher instance connects to the lower one. So an instance's proxy has the connections of the
//! instances above it. A connection itself says which of them it belongs to, in the second message
//! of the handshake (`interconnect::auth`), which goes in the clear on loopback.

use seam::Rng;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;
use testkit::ports::free_ports;

/// The position of the connector's number in what it sends: behind a greeting of 40 bytes, 16 bytes
/// into its identity.
const NUMBER_AT: usize = 40 + 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Each piece that is passed on waits for up to so many milliseconds.
    Delay(u64),
    /// Nothing is passed on as long as this lasts.
    Stall,
    /// Bytes are held back towards the lower instance only, or away from it only.
    StallUp,
    StallDown,
    /// Connections are broken, new ones as soon as it is known whose they are.
    Break,
}

impl Fault {
    fn stalls(self, towards_lower: bool) -> bool {
        match self {
            Fault::Stall => true,
            Fault::StallDown => towards_lower,
            Fault::StallUp => !towards_lower,
            Fault::Delay(_) | Fault::Break => false,
        }
    }
}

#[derive(Default)]
struct State {
    /// Faults by the number of the higher instance.
    faults: BTreeMap<u16, Fault>,
    /// Each connection, with the number of the instance that made it; 0 before that is known.
    open: BTreeMap<u64, (u16, [TcpStream; 2])>,
    connections: u64,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread has panicked")
    }
}

pub struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
}

fn end(streams: &[TcpStream; 2]) {
    for stream in streams {
        // The connection may be closed already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

impl Proxy {
    /// A proxy to a port of this machine.
    pub fn to(port: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", free_ports(1))).expect("a claimed port");
        let own = listener.local_addr().expect("its address").port();
        let shared: Arc<Shared> = Arc::default();
        let of_thread = shared.clone();
        std::thread::spawn(move || {
            for incoming in listener.incoming().map_while(Result::ok) {
                // If no instance listens there now, the connecting one sees its connection end.
                if let Ok(outgoing) = TcpStream::connect(("127.0.0.1", port)) {
                    accept([incoming, outgoing], &of_thread);
                }
            }
        });
        Proxy { port: own, shared }
    }

    /// Sets the fault of a higher instance's connections from now on; `None`: none.
    pub fn set(&self, from: u16, fault: Option<Fault>) {
        let mut state = self.shared.state();
        match fault {
            Some(fault) => state.faults.insert(from, fault),
            None => state.faults.remove(&from),
        };
        if fault == Some(Fault::Break) {
            let theirs = state.open.values().filter(|(k, _)| *k == from);
            theirs.for_each(|(_, streams)| end(streams));
        }
        self.shared.changed.notify_all();
    }
}

fn accept(streams: [TcpStream; 2], shared: &Arc<Shared>) {
    let clone = |s: &TcpStream| s.try_clone().expect("a descriptor");
    let mut state = shared.state();
    state.connections += 1;
    let number = state.connections;
    state
        .open
        .insert(number, (0, [clone(&streams[0]), clone(&streams[1])]));
    drop(state);
    let [incoming, outgoing] = &streams;
    for (from, to, towards_lower) in [(incoming, outgoing, true), (outgoing, incoming, false)] {
        let _ = from.set_nodelay(true);
        let (from, to, shared) = (clone(from), clone(to), shared.clone());
        std::thread::spawn(move || pass_on(from, to, &shared, number, towards_lower));
    }
}

/// Passes bytes on until one side ends.
fn pass_on(
    mut from: TcpStream,
    mut to: TcpStream,
    shared: &Shared,
    number: u64,
    towards_lower: bool,
) {
    let mut buf = vec![0; 64 << 10];
    let mut head = Vec::new();
    let mut rng = Rng(number);
    loop {
        let read = from.read(&mut buf).unwrap_or_default();
        let mut state = shared.state();
        if towards_lower && head.len() < NUMBER_AT + 2 {
            head.extend(&buf[..read]);
            if let Some(&[low, high]) = head.get(NUMBER_AT..NUMBER_AT + 2)
                && let Some(connection) = state.open.get_mut(&number)
            {
                connection.0 = u16::from_le_bytes([low, high]);
            }
        }
        let fault = |s: &State| s.faults.get(&s.open.get(&number)?.0).copied();
        let stalled = |s: &mut State| fault(s).is_some_and(|f| f.stalls(towards_lower));
        let mut state = shared
            .changed
            .wait_while(state, stalled)
            .expect("no thread has panicked");
        let fault = fault(&state);
        if read == 0 || fault == Some(Fault::Break) {
            if let Some((_, streams)) = state.open.remove(&number) {
                end(&streams);
            }
            return;
        }
        drop(state);
        if let Some(Fault::Delay(most)) = fault {
            std::thread::park_timeout(Duration::from_millis(1 + rng.below(most)));
        }
        if to.write_all(&buf[..read]).is_err() {
            let _ = from.shutdown(Shutdown::Both);
        }
    }
}
