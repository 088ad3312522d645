//! What stands between instances: connections are passed on, slowly, not at all, or broken.

use crate::processes::free_ports;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    None,
    /// Each piece that is passed on waits for some milliseconds.
    Delay,
    /// Nothing is passed on as long as this lasts.
    Stall,
    /// Connections are broken, and new ones not taken.
    Break,
}

struct State {
    fault: Fault,
    open: Vec<TcpStream>,
}

pub struct Proxy {
    pub port: u16,
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Proxy {
    /// To a port of this machine.
    pub fn to(port: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", free_ports(1))).expect("a claimed port");
        let own = listener.local_addr().expect("its address").port();
        let state = State {
            fault: Fault::None,
            open: Vec::new(),
        };
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let of_thread = shared.clone();
        std::thread::spawn(move || {
            for incoming in listener.incoming().map_while(Result::ok) {
                // Nobody may be listening there just now: then this one sees its connection end.
                let Ok(outgoing) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                let mut state = of_thread.0.lock().expect("no thread has panicked");
                if state.fault == Fault::Break {
                    continue;
                }
                let clone = |s: &TcpStream| s.try_clone().expect("a descriptor");
                state.open.extend([clone(&incoming), clone(&outgoing)]);
                drop(state);
                for (from, to) in [(clone(&incoming), clone(&outgoing)), (outgoing, incoming)] {
                    let _ = from.set_nodelay(true);
                    let shared = of_thread.clone();
                    std::thread::spawn(move || pass_on(from, to, &shared));
                }
            }
        });
        Proxy { port: own, shared }
    }

    pub fn set(&self, fault: Fault) {
        let mut state = self.shared.0.lock().expect("no thread has panicked");
        state.fault = fault;
        if fault == Fault::Break {
            for connection in state.open.drain(..) {
                // It may be closed already.
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
        self.shared.1.notify_all();
    }
}

/// Until one side ends.
fn pass_on(mut from: TcpStream, mut to: TcpStream, shared: &(Mutex<State>, Condvar)) {
    let mut buf = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buf).unwrap_or_default();
        let state = shared.0.lock().expect("no thread has panicked");
        let stalled = |s: &mut State| s.fault == Fault::Stall;
        let state = shared
            .1
            .wait_while(state, stalled)
            .expect("no thread has panicked");
        let slow = state.fault == Fault::Delay;
        drop(state);
        if slow {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        if read == 0 || to.write_all(&buf[..read]).is_err() {
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
            return;
        }
    }
}
