//! Threads. A thread that a thread of a simulation starts is in the simulation, too, in its
//! starter's process.

pub use imp::*;

#[cfg(not(debug_assertions))]
mod imp {
    pub use std::thread::{
        Builder, JoinHandle, Thread, current, park, park_timeout, sleep, spawn, yield_now,
    };
}

#[cfg(debug_assertions)]
mod imp {
    use crate::sim::{self, Key, Task};
    use std::io;
    use std::thread::ThreadId;
    use std::time::Duration;

    /// A thread that may be woken.
    #[derive(Clone)]
    pub struct Thread {
        inner: std::thread::Thread,
        task: Option<Task>,
    }

    impl Thread {
        pub fn unpark(&self) {
            match self.task {
                Some(task) => task.unpark(),
                None => self.inner.unpark(),
            }
        }
        pub fn id(&self) -> ThreadId {
            self.inner.id()
        }
        pub fn name(&self) -> Option<&str> {
            self.inner.name()
        }
    }

    pub fn current() -> Thread {
        Thread {
            inner: std::thread::current(),
            task: sim::current(),
        }
    }

    pub fn park() {
        match sim::current() {
            Some(task) => task.park(None),
            None => std::thread::park(),
        }
    }

    pub fn park_timeout(time: Duration) {
        match sim::current() {
            Some(task) => task.park(Some(task.now() + time)),
            None => std::thread::park_timeout(time),
        }
    }

    pub fn sleep(time: Duration) {
        match sim::current() {
            Some(task) => task.sleep(time),
            None => std::thread::sleep(time),
        }
    }

    pub fn yield_now() {
        match sim::current() {
            Some(task) => task.yield_now(),
            None => std::thread::yield_now(),
        }
    }

    pub struct JoinHandle<T> {
        inner: std::thread::JoinHandle<T>,
        task: Option<Task>,
    }

    impl<T> JoinHandle<T> {
        pub fn join(self) -> std::thread::Result<T> {
            if let (Some(me), Some(other)) = (sim::current(), self.task) {
                while !other.has_ended() {
                    me.block(Key::Join(other.number()), None);
                }
            }
            self.inner.join()
        }
        pub fn is_finished(&self) -> bool {
            match self.task {
                Some(task) => task.has_ended(),
                None => self.inner.is_finished(),
            }
        }
        pub fn thread(&self) -> Thread {
            Thread {
                inner: self.inner.thread().clone(),
                task: self.task,
            }
        }
    }

    #[derive(Default)]
    pub struct Builder {
        name: Option<String>,
    }

    impl Builder {
        pub fn new() -> Builder {
            Builder::default()
        }
        pub fn name(self, name: String) -> Builder {
            Builder { name: Some(name) }
        }
        pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
        where
            F: FnOnce() -> T + Send + 'static,
            T: Send + 'static,
        {
            let real = match &self.name {
                Some(name) => std::thread::Builder::new().name(name.clone()),
                None => std::thread::Builder::new(),
            };
            let Some(me) = sim::current() else {
                let inner = real.spawn(f)?;
                return Ok(JoinHandle { inner, task: None });
            };
            let task = me.start(self.name.as_deref().unwrap_or("thread"), me.process());
            match real.spawn(move || task.run(f)) {
                Ok(inner) => {
                    me.point();
                    let task = Some(task);
                    Ok(JoinHandle { inner, task })
                }
                Err(e) => {
                    task.never_ran();
                    Err(e)
                }
            }
        }
    }

    pub fn spawn<F, T>(f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Builder::new()
            .spawn(f)
            .expect("the system starts a thread, as std's function expects too")
    }
}
