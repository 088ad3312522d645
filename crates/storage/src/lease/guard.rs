//! Eviction: an order on shared storage to end an instance, and the guard that carries it out.
//!
//! An instance that hangs keeps its locks, and rightly so: it could wake up in the middle of a
//! write. Its *guard*, the parent process on its host, reads orders for it and kills it. Then its
//! locks go, and only they prove that it is dead. So an order is never a proof, and a lost or late
//! order costs time only.
//!
//! ```text
//! file `evict`, made with the database, for instance k the sector at byte (k - 1) * 4096:
//! magic u64 | incarnation u32 | by instance u16 | zero u16 | epoch u64
//! | CRC32C of the bytes before u32
//! ```
//!
//! An empty file has no orders: a process that only reads them needs no room on the disk. In a
//! database without room for orders, the instance that gives the first one makes the file long
//! enough.

use crate::{AlignedBuf, Error, File, FileKind, Result, SECTOR, Storage};
use block::{FileId, InstanceId};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Signal, pidfd_send_signal};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use wait::Event;

const NAME: &str = "evict";
const MAGIC: u64 = u64::from_le_bytes(*b"BRAIDEV1");
const ORDER_BYTES: usize = 28;

/// The order "end this life of the instance, and any before it".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    pub instance: InstanceId,
    pub incarnation: u32,
    pub by: InstanceId,
    pub epoch: u64,
}

/// The file of orders. As a rule one survivor at a time writes a sector. If two do, the later order
/// stays, and either is good.
pub struct Orders {
    file: Arc<dyn File>,
}

impl Orders {
    /// Opens the file, or makes it, empty.
    pub fn open(storage: &dyn Storage) -> Result<Orders> {
        if !storage.exists(NAME)? {
            match storage.create(NAME, FileKind::Control) {
                Ok(_) | Err(Error::Exists { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        let file = storage.open(NAME, FileKind::Control)?;
        Ok(Orders { file })
    }

    /// Makes room for an order for every instance, so that none is lacking when the disk is full.
    pub fn prepare(&self) -> Result<()> {
        let length = u64::from(FileId::MAX_INSTANCES) * SECTOR as u64;
        match self.file.len()? < length {
            true => self.file.allocate(length, true, &mut |_| {}),
            false => Ok(()),
        }
    }

    pub fn give(&self, order: Order) -> Result<()> {
        self.prepare()?;
        let mut buf = AlignedBuf::zeroed(SECTOR);
        buf[..8].copy_from_slice(&MAGIC.to_le_bytes());
        buf[8..12].copy_from_slice(&order.incarnation.to_le_bytes());
        buf[12..14].copy_from_slice(&order.by.0.to_le_bytes());
        buf[16..24].copy_from_slice(&order.epoch.to_le_bytes());
        let crc = crc32c::crc32c(&buf[..24]);
        buf[24..ORDER_BYTES].copy_from_slice(&crc.to_le_bytes());
        self.file.write_at(place(order.instance), &buf)?;
        self.file.sync()
    }

    /// The last order for an instance. None if there never was one, or if it is torn: then it is
    /// given again.
    pub fn read(&self, instance: InstanceId) -> Result<Option<Order>> {
        let at = place(instance);
        if self.file.len()? < at + SECTOR as u64 {
            return Ok(None);
        }
        let mut buf = AlignedBuf::zeroed(SECTOR);
        self.file.read_at(at, &mut buf)?;
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| buf[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| buf[at + i]));
        if u64_at(0) != MAGIC || u32_at(24) != crc32c::crc32c(&buf[..24]) {
            return Ok(None);
        }
        Ok(Some(Order {
            instance,
            incarnation: u32_at(8),
            by: InstanceId(u16::from_le_bytes([buf[12], buf[13]])),
            epoch: u64_at(16),
        }))
    }
}

fn place(instance: InstanceId) -> u64 {
    assert!(
        (1..=FileId::MAX_INSTANCES).contains(&instance.0),
        "invariant: instances are numbered from 1"
    );
    u64::from(instance.0 - 1) * SECTOR as u64
}

/// Why a guard stopped guarding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuardEnd {
    /// The child has ended by itself. The caller waits for it.
    Exited,
    /// The child was killed by this order.
    Evicted(Order),
}

/// Guards a child process, known by its pidfd, until it ends. `above` is the last incarnation of
/// the instance before the child was started: orders up to that one are not for the child.
///
/// Orders are read every `interval`. If they cannot be read, the child cannot write either, or soon
/// will not: its own errors tell it.
pub fn guard(
    orders: &Orders,
    instance: InstanceId,
    above: u32,
    child: BorrowedFd<'_>,
    interval: Duration,
) -> Result<GuardEnd> {
    let pause = Timespec {
        tv_sec: interval.as_secs() as i64,
        tv_nsec: i64::from(interval.subsec_nanos()),
    };
    let mut evicted = None;
    loop {
        let mut fds = [PollFd::from_borrowed_fd(child, PollFlags::IN)];
        let ended = wait::during(
            Event::RdbmsIpcMessage,
            [u64::from(instance.0), 0, 0],
            || rustix::event::poll(&mut fds, Some(&pause)),
        );
        match ended {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(evicted.map_or(GuardEnd::Exited, GuardEnd::Evicted)),
            Err(e) => return Err(Error::io("wait for", "the guarded process", 0, e.into())),
        }
        match orders.read(instance) {
            Ok(Some(order)) if order.incarnation > above => {
                match pidfd_send_signal(child, Signal::KILL) {
                    Ok(()) => evicted = Some(order),
                    // The child has ended by itself meanwhile. The next turn sees that.
                    Err(rustix::io::Errno::SRCH) => {}
                    Err(e) => return Err(Error::io("kill", "the guarded process", 0, e.into())),
                }
            }
            Ok(_) => {}
            // Orders that cannot be read are passed over: the child's own errors tell it.
            Err(Error::Io { .. }) => {}
            Err(e) => return Err(e),
        }
    }
}
