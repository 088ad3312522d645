//! The port of the console, which the instances of a host share: one has it, the others ask for it
//! again every second. So another one takes over within a second of the end of the one that had it.
//!
//! Tokens are sealed with a secret of the database, so a browser goes on with the next instance
//! without another login.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use server::Door;

use crate::answer::Site;

/// How often an instance that waits for the port tries to take it.
const RETRY: Duration = Duration::from_secs(1);

/// What the console is served with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub address: SocketAddr,
    /// Names of this host that browsers may use, besides its addresses and `localhost`.
    pub host_names: Vec<String>,
}

/// The console of an instance. It is served, or waits for its port, until it is stopped.
pub struct Console {
    shared: Arc<Shared>,
    door: Door,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Default)]
struct State {
    is_stopping: bool,
    listener: Option<Arc<TcpListener>>,
}

impl Console {
    pub fn start(settings: Settings, door: Door, instance: u16) -> io::Result<Console> {
        let shared = Arc::new(Shared::default());
        let (of_thread, to_serve) = (shared.clone(), door.clone());
        let thread = std::thread::Builder::new()
            .name("console".into())
            .spawn(move || of_thread.run(&settings, &to_serve, instance))?;
        Ok(Console {
            shared,
            door,
            thread,
        })
    }

    /// Gives the port to another instance and ends all callers. Returns whether all ended in time.
    pub fn stop(self) -> bool {
        {
            let mut state = self.shared.state.lock();
            state.is_stopping = true;
            if let Some(listener) = &state.listener {
                // It wakes the accepting thread; an error means that nobody waits.
                let _ = rustix::net::shutdown(&**listener, rustix::net::Shutdown::Both);
            }
        }
        self.shared.stopped.notify_all();
        // If the thread panics, its message is in the log.
        let _ = self.thread.join();
        self.door.stop()
    }
}

impl Shared {
    fn run(&self, settings: &Settings, door: &Door, instance: u16) {
        let address = settings.address;
        let mut told = None;
        let site = Arc::new(Site::new(door.clone(), settings.clone(), instance));
        while !self.is_stopping() {
            let refused = match TcpListener::bind(address) {
                Ok(listener) => {
                    told = None;
                    tracing::info!("the console is at http://{address}/");
                    self.serve(listener, door, &site);
                    continue;
                }
                Err(e) => e.kind(),
            };
            if told != Some(refused) {
                told = Some(refused);
                match refused {
                    io::ErrorKind::AddrInUse => tracing::info!(
                        "console: {address} is in use, most likely by another instance; this one \
                         takes it over when it is free"
                    ),
                    refused => tracing::warn!("console: cannot listen on {address}: {refused}"),
                }
            }
            self.wait(RETRY);
        }
    }

    fn is_stopping(&self) -> bool {
        self.state.lock().is_stopping
    }

    /// Waits for `pause`, or until the console stops.
    fn wait(&self, pause: Duration) {
        let mut state = self.state.lock();
        if !state.is_stopping {
            self.stopped.wait_for(&mut state, pause);
        }
    }

    /// Takes callers until the console stops.
    fn serve(&self, listener: TcpListener, door: &Door, site: &Arc<Site>) {
        let listener = Arc::new(listener);
        self.state.lock().listener = Some(listener.clone());
        while !self.is_stopping() {
            let taken = listener.accept().and_then(|(stream, peer)| {
                if !door.knows(peer.ip()) {
                    return Ok(());
                }
                let site = site.clone();
                door.receive(stream, peer, move |caller| site.talk(caller))
            });
            match taken {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if self.is_stopping() => {}
                Err(e) => {
                    // Descriptors or memory have run out. Connections that end give some back.
                    tracing::error!("console: cannot accept a connection: {e}");
                    self.wait(RETRY);
                }
            }
        }
        self.state.lock().listener = None;
    }
}
