//! Redo whose bytes have been changed. Reading it ends where the writer's redo does, or before, or
//! with an error that says what is wrong. It never panics, and never takes a batch that nobody
//! wrote.
//!
//! `BRAID_REDO_FUZZ=n` sets the number of threads of redo (default 40, of 60 changes each).
//! `BRAID_SEED` selects one of them.

use crate::common::*;
use block::Scn;
use redo::*;
use storage::SimStorage;
use testkit::seeds::{number, seeds};

const FILE: &str = "redo/thread1_1.log";
/// The place of a batch's length in its header; `CRC_AT` is that of its checksum.
const LENGTH_AT: usize = 20;
const CRC_AT: usize = 80;

/// A record as read: position, SCN, and for each vector the bytes that say what it changes.
type Read = (u64, Scn, Vec<Vec<u8>>);

/// Reads the thread as a start does, down to the vectors' payloads. Returns each record as read so
/// far, and the error.
fn read(storage: &SimStorage) -> (Vec<Read>, Option<Error>) {
    let files = files(&[storage], 1);
    let mut reader = RedoReader::new(&files, RestartPoint::FIRST);
    let mut all = Vec::new();
    loop {
        let batch = match reader.next_batch() {
            Ok(Some(batch)) => batch,
            Ok(None) => return (all, None),
            Err(e) => return (all, Some(e)),
        };
        for record in batch.records() {
            match record {
                Ok(r) => {
                    let vectors = r.vectors().map(|v| v.payload.to_vec());
                    all.push((r.pos.0, r.scn, vectors.collect()));
                }
                Err(e) => return (all, Some(e)),
            }
        }
    }
}

/// A thread of two lives: records short and longer than a block, several to a batch.
fn thread_of(rng: &mut Rng) -> SimStorage {
    let storage = SimStorage::new();
    create(&[&storage], 1);
    let clock = clock();
    let mut number = 0;
    for _life in 0..2 {
        let t = open(&[&storage], 1, RestartPoint::FIRST, &clock).unwrap();
        for _batch in 0..3 + rng.below(5) {
            let mut end = None;
            for _ in 0..1 + rng.below(4) {
                number += 1;
                let payload = match rng.below(3) {
                    0 => rng.below(20),
                    1 => rng.below(500),
                    _ => rng.below(9000),
                };
                end = Some(
                    t.redo
                        .append(&mut record(number, payload as usize), |_, _| ())
                        .end,
                );
            }
            t.redo.flush_to(end.unwrap()).unwrap();
        }
    }
    storage
}

/// The starts of the batches in the file's bytes.
fn batches(bytes: &[u8]) -> Vec<usize> {
    let starts = (LOG_BLOCK..bytes.len()).step_by(LOG_BLOCK);
    starts
        .filter(|at| BatchHeader::decode(&bytes[*at..]).is_ok())
        .collect()
}

/// Changes some of the bytes in use, and says what.
fn change(bytes: &mut [u8], used: usize, rng: &mut Rng) -> String {
    let at = LOG_BLOCK + rng.below((used - LOG_BLOCK) as u64) as usize;
    let block = at / LOG_BLOCK * LOG_BLOCK;
    let other = LOG_BLOCK * (1 + rng.below((used / LOG_BLOCK) as u64 - 1) as usize);
    match rng.below(7) {
        0 => {
            bytes[at] ^= 1 << rng.below(8);
            format!("a bit at {at}")
        }
        1 => {
            let starts = batches(bytes);
            let start = starts[rng.below(starts.len() as u64) as usize];
            let at = start + rng.below(BATCH_HEADER as u64) as usize;
            bytes[at] = rng.next() as u8;
            format!("a byte of a header at {at}")
        }
        2 => {
            bytes[block..block + LOG_BLOCK].fill(0);
            format!("zeros in the block at {block}")
        }
        3 => {
            bytes.copy_within(other..other + LOG_BLOCK, block);
            format!("the block at {other} copied to {block}")
        }
        4 => {
            let moved: Vec<u8> = bytes[other..other + LOG_BLOCK].to_vec();
            bytes.copy_within(block..block + LOG_BLOCK, other);
            bytes[block..block + LOG_BLOCK].copy_from_slice(&moved);
            format!("the blocks at {block} and {other} exchanged")
        }
        5 => {
            bytes[at..used].fill(0);
            format!("zeros from {at} on")
        }
        _ => {
            let n = 1 + rng.below(64) as usize;
            let end = (at + n).min(used);
            bytes[at..end].fill_with(|| rng.next() as u8);
            format!("{n} bytes at {at}")
        }
    }
}

/// Seals the batch around `start` again, as a faulty writer would have.
fn seal(bytes: &mut [u8], start: usize) {
    let length = &bytes[start + LENGTH_AT..start + LENGTH_AT + 4];
    let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
    if let Some(batch) = bytes.get_mut(start..start.saturating_add(length))
        && length >= BATCH_HEADER
    {
        batch[CRC_AT..CRC_AT + 4].fill(0);
        let crc = crc32c::crc32c(batch);
        batch[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

#[test]
fn changed_redo_ends_sooner_or_is_refused() {
    let threads = 1..=number("BRAID_REDO_FUZZ", 40);
    let (mut whole, mut sooner, mut refused, mut sealed) = (0, 0, 0, 0);
    for seed in seeds("BRAID_SEED", threads) {
        let mut rng = Rng(seed);
        let storage = thread_of(&mut rng);
        let original = storage.contents(FILE).unwrap();
        let starts = batches(&original);
        let used = starts.last().unwrap() + 4 * LOG_BLOCK;
        let (expected, error) = read(&storage);
        assert!(error.is_none(), "BRAID_SEED={seed}: {error:?}");
        for n in 0..60 {
            let mut bytes = original.clone();
            let mut what = change(&mut bytes, used, &mut rng);
            if rng.below(3) == 0 {
                what += &format!(", {}", change(&mut bytes, used, &mut rng));
            }
            // In a third of the cases the checksum is right: the layers above it must withstand the
            // bytes, too.
            let seals = n % 3 == 0;
            if seals {
                starts.iter().for_each(|start| seal(&mut bytes, *start));
            }
            storage.overwrite(FILE, 0, &bytes);
            let (found, error) = read(&storage);
            let context = format!("BRAID_SEED={seed}, change {n}: {what}; then {error:?}");
            if seals {
                sealed += 1;
                continue;
            }
            assert!(
                expected.starts_with(&found),
                "{context}: something was read that was not written"
            );
            match error {
                Some(e) => {
                    assert!(matches!(e, Error::Damaged { .. }), "{context}");
                    refused += 1;
                }
                None if found.len() == expected.len() => whole += 1,
                None => sooner += 1,
            }
        }
    }
    eprintln!(
        "{whole} read as written, {sooner} ended sooner, {refused} refused, {sealed} sealed again"
    );
    assert!(
        sooner > 0 && refused > 0 && whole > 0,
        "the changes reach all outcomes"
    );
}
