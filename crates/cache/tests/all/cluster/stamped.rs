//! Blocks that are written behind a header of the log that tells what they show.

use super::*;
use std::sync::OnceLock;

/// The data file of an instance. It notes how far the log was durable when blocks were last
/// written.
struct Watched {
    file: Arc<dyn storage::File>,
    redo: OnceLock<Arc<redo::Redo>>,
    durable: AtomicU64,
}

impl storage::File for Watched {
    fn path(&self) -> &str {
        self.file.path()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> storage::Result<()> {
        self.file.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> storage::Result<()> {
        if let Some(redo) = self.redo.get() {
            self.durable.store(redo.durable().0, SeqCst);
        }
        self.file.write_at(offset, buf)
    }
    fn sync(&self) -> storage::Result<()> {
        self.file.sync()
    }
    fn len(&self) -> storage::Result<u64> {
        self.file.len()
    }
    fn allocate(&self, len: u64, zeroes: bool, p: &mut dyn FnMut(u64)) -> storage::Result<()> {
        self.file.allocate(len, zeroes, p)
    }
    fn punch(&self, offset: u64, len: u64) -> storage::Result<()> {
        self.file.punch(offset, len)
    }
}

/// Rows of a block may show when a group took effect of which only its own instance knows, or only
/// this one. If the block reached the disk and both died, a survivor would see the rows and not
/// know when that was. So a header is made durable first. It tells of every group that is known
/// when the block is copied (V8).
#[test]
fn a_block_with_stamps_is_written_behind_a_header() {
    let own = create();
    let watched = Arc::new(Watched {
        file: create().open("data", FileKind::Data).unwrap(),
        redo: OnceLock::new(),
        durable: AtomicU64::new(0),
    });
    let instance = Instance::open_paused(&own, watched.clone()).unwrap();
    instance.gate.open.store(true, Release);
    let cache = instance.cache.clone();
    watched.redo.get_or_init(|| cache.redo().clone());
    load(&cache, 1..=1);
    let network = Arc::new(Network {
        me: id(0),
        cache: Mutex::default(),
        to: Mutex::default(),
        sent: Default::default(),
    });
    cache.join_cluster(network, 1).unwrap();
    cache.reconfigure(&Reconfiguration {
        epoch: 1,
        members: vec![(id(0), 1)],
        dead: Vec::new(),
        in_limbo: Vec::new(),
        recoverer: id(0),
    });
    cache.checkpoint().unwrap();
    let redo = cache.redo();
    redo.flush_to(redo.end()).unwrap();
    let end = redo.end().0;
    cache.write(dba(1)).unwrap().hint(|_| ());
    // The checkpoint must pass the hint, so something is logged behind it. Nobody asks for this to
    // be durable.
    cache.mark(RecordHeader::NONE, Op::Heartbeat, &[], |_, _| ());
    watched.durable.store(0, SeqCst);
    cache.checkpoint().unwrap();
    assert!(watched.durable.load(SeqCst) > end);
    cache.leave_cluster();
    instance.stop();
}
