//! Memory that two instances of one machine share. One makes a region and tells its key, the other
//! opens the region.
//!
//! A region consists of words that both read and write as atomics. [`Process`] makes regions that
//! other processes can open: files without a name, in memory, which processes of one user reach
//! through `/proc`. A file is sealed against being made shorter before anybody maps it, and is not
//! mapped without that seal, so no access can meet an end that was cut off. Nothing is left behind
//! when a process is killed. [`Registry`] makes regions for instances within one process (tests,
//! simulation).
//!
//! A process that can open a region could write into the whole process of its maker anyhow (same
//! user, same machine). So regions are as trustworthy as this process's own memory. A key that was
//! meant for another machine opens nothing: the region begins with a token drawn at random.

use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use seam::{HashMap, Mutex};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The number of words in every region.
pub const REGION_WORDS: usize = 1 << 14;
/// The number of words, at a region's beginning, that hold its token.
pub const TOKEN_WORDS: usize = 2;
const REGION_BYTES: usize = REGION_WORDS * size_of::<u64>();

/// What another instance needs to open a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    pub process: u32,
    pub descriptor: u32,
    pub token: [u64; TOKEN_WORDS],
}

/// Makes and opens regions.
pub trait SharedMemory: Send + Sync {
    /// Makes a region of zeros behind its token.
    fn create(&self) -> io::Result<(Key, Region)>;
    /// The region with this key. None if there is no such region on this machine, or this process
    /// may not open it.
    fn open(&self, key: Key) -> Option<Region>;
}

/// A region: words in memory that others may have, too.
pub struct Region(Backing);

enum Backing {
    Mapped(Mapping),
    Shared(Arc<[AtomicU64]>),
}

impl Region {
    pub fn words(&self) -> &[AtomicU64] {
        match &self.0 {
            // SAFETY: the mapping has as many bytes, is aligned to a page, and lives as long as
            // `self`. All that have it read and write it as atomics.
            Backing::Mapped(m) => unsafe {
                std::slice::from_raw_parts(m.start.as_ptr().cast(), REGION_WORDS)
            },
            Backing::Shared(words) => words,
        }
    }

    fn has_token(&self, token: [u64; TOKEN_WORDS]) -> bool {
        let mut words = self.words().iter().zip(token);
        words.all(|(word, token)| word.load(Ordering::Relaxed) == token)
    }

    fn set_token(&self, token: [u64; TOKEN_WORDS]) {
        for (word, token) in self.words().iter().zip(token) {
            word.store(token, Ordering::Relaxed);
        }
    }
}

struct Mapping {
    start: NonNull<u8>,
    /// Kept open, because other processes open the maker's descriptor.
    _file: OwnedFd,
}

// SAFETY: the memory is not bound to a thread, and is accessed as atomics alone.
unsafe impl Send for Mapping {}
// SAFETY: the memory is accessed as atomics alone.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file that has the size and cannot lose it.
    fn new(file: OwnedFd) -> io::Result<Mapping> {
        let sealed = rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        let size = rustix::fs::fstat(&file)?.st_size;
        if !sealed || size != REGION_BYTES as i64 {
            let what = "it is no region of an instance's memory";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses. The file has as many bytes
        // and keeps them (sealed).
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                REGION_BYTES,
                access,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
        let start =
            NonNull::new(start.cast()).expect("invariant: the kernel maps nothing at address 0");
        Ok(Mapping { start, _file: file })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `new` made, and nobody uses it any more. The call cannot
        // fail with these arguments.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), REGION_BYTES) };
    }
}

/// Makes regions that other processes can open.
#[derive(Clone, Copy, Default, Debug)]
pub struct Process;

impl SharedMemory for Process {
    fn create(&self) -> io::Result<(Key, Region)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("braid-region", flags)?;
        rustix::fs::ftruncate(&file, REGION_BYTES as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mut bytes = [0; TOKEN_WORDS * 8];
        let drawn = SystemRandom::new().fill(&mut bytes);
        drawn.map_err(|_| io::Error::other("the system gives no random numbers"))?;
        let (words, _) = bytes.as_chunks::<8>();
        let token = std::array::from_fn(|i| u64::from_le_bytes(words[i]));
        let key = Key {
            process: std::process::id(),
            descriptor: file.as_raw_fd() as u32,
            token,
        };
        let region = Region(Backing::Mapped(Mapping::new(file)?));
        region.set_token(token);
        Ok((key, region))
    }

    fn open(&self, key: Key) -> Option<Region> {
        let path = format!("/proc/{}/fd/{}", key.process, key.descriptor);
        // The name may stand for anything: opening it must not wait, nor make a terminal ours.
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let region = Region(Backing::Mapped(Mapping::new(file).ok()?));
        region.has_token(key.token).then_some(region)
    }
}

/// Makes regions for instances within this process.
#[derive(Default)]
pub struct Registry {
    regions: Mutex<HashMap<u32, Weak<[AtomicU64]>>>,
}

impl SharedMemory for Registry {
    fn create(&self) -> io::Result<(Key, Region)> {
        let words: Arc<[AtomicU64]> = (0..REGION_WORDS).map(|_| AtomicU64::new(0)).collect();
        let mut regions = self.regions.lock();
        let descriptor = regions.len() as u32;
        regions.insert(descriptor, Arc::downgrade(&words));
        let region = Region(Backing::Shared(words));
        let token = [u64::from(descriptor) + 1; TOKEN_WORDS];
        region.set_token(token);
        let key = Key {
            process: 0,
            descriptor,
            token,
        };
        Ok((key, region))
    }

    fn open(&self, key: Key) -> Option<Region> {
        let words = self.regions.lock().get(&key.descriptor)?.upgrade()?;
        let region = Region(Backing::Shared(words));
        region.has_token(key.token).then_some(region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd as _;

    fn opens_what_it_made(memory: &dyn SharedMemory) {
        let (key, mine) = memory.create().unwrap();
        let theirs = memory.open(key).unwrap();
        assert_eq!(theirs.words().len(), REGION_WORDS);
        theirs.words()[REGION_WORDS - 1].store(7, Ordering::Release);
        assert_eq!(mine.words()[REGION_WORDS - 1].load(Ordering::Acquire), 7);
        let (other, _kept) = memory.create().unwrap();
        assert_ne!(key, other);
        let mixed = Key {
            token: other.token,
            ..key
        };
        assert!(memory.open(mixed).is_none(), "another region's token");
        drop(mine);
        theirs.words()[0].store(1, Ordering::Release); // still there for its holder
    }

    #[test]
    fn a_region_is_shared_with_whoever_has_its_key() {
        opens_what_it_made(&Process);
        opens_what_it_made(&Registry::default());
    }

    #[test]
    fn what_is_no_region_is_not_opened() {
        let (key, _region) = Process.create().unwrap();
        let at = |process: u32, descriptor: u32| Key {
            process,
            descriptor,
            token: key.token,
        };
        let null = std::fs::File::open("/dev/null").unwrap().into_raw_fd() as u32;
        let short = rustix::fs::memfd_create("short", MemfdFlags::ALLOW_SEALING).unwrap();
        let unsealed = rustix::fs::memfd_create("unsealed", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&unsealed, REGION_BYTES as u64).unwrap();
        let here = std::process::id();
        for key in [
            at(here, null),
            at(here, short.into_raw_fd() as u32),
            at(here, unsealed.into_raw_fd() as u32),
            at(here, 1_000_000),
            at(u32::MAX, 0),
        ] {
            assert!(Process.open(key).is_none(), "{key:?}");
        }
        assert!(Process.open(key).is_some());
    }
}
