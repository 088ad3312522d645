//! Records that are kept in order: whatever the memory, each is found at its place, also by readers
//! at different places while more are appended, and no file is left behind.

use crate::common::*;
use engine::*;
use storage::Storage;
use testkit::seeds::seeds;

const TEMP: &str = "temp/instance1_0.tmp";

fn record(rng: &mut Rng, most: u64) -> Vec<u8> {
    (0..rng.below(most)).map(|_| rng.below(256) as u8).collect()
}

#[test]
fn records_are_found_at_their_places_whatever_the_memory() {
    let (storage, _) = create();
    let engine = open(&storage).unwrap();
    let s = engine.session().unwrap();
    for seed in seeds("BRAID_SEED", [1, 2]) {
        let mut rng = Rng(seed);
        // The last are longer than what a reader reads at once.
        for (n, most, memory) in [
            (0, 1, 0),
            (3000, 900, 64 << 20),
            (3000, 900, 0),
            (3000, 900, 400_000),
            (20, 400_000, 1 << 20),
        ] {
            let mut records = s.records(memory);
            let (mut wanted, mut places) = (Vec::new(), Vec::new());
            // One reader follows the writer, some records behind.
            let (mut behind, mut at, mut next) = (RecordReader::default(), 0, 0);
            for i in 0..n {
                let record = record(&mut rng, most);
                places.push(records.push(|out| out.extend_from_slice(&record)).unwrap());
                wanted.push(record);
                if rng.below(3) > 0 && next <= i {
                    let (found, after) = records.read(at, &mut behind).unwrap().unwrap();
                    assert_eq!(found, wanted[next]);
                    (at, next) = (after, next + 1);
                }
            }
            assert_eq!(records.count(), n as u64);
            assert_eq!(storage.exists(TEMP).unwrap(), n > 0 && memory < 8 << 20);
            while let Some((found, after)) = records.read(at, &mut behind).unwrap() {
                assert_eq!(found, wanted[next]);
                (at, next) = (after, next + 1);
            }
            assert_eq!((next, at), (n, records.end()));
            let mut reader = RecordReader::default();
            for _ in 0..n {
                let i = rng.below(n as u64) as usize;
                let (found, after) = records.read(places[i], &mut reader).unwrap().unwrap();
                assert_eq!(found, wanted[i], "record {i} of {n}, {memory} bytes");
                assert_eq!(records.skip(places[i], &mut reader).unwrap(), after);
                if n < 1000 {
                    continue;
                }
                // What a reader of an earlier life has read does not come back.
                if rng.below(700) == 0 {
                    records.clear();
                    assert_eq!(records.read(0, &mut reader).unwrap(), None);
                    assert!(!storage.exists(TEMP).unwrap());
                    for record in wanted.iter_mut() {
                        record.iter_mut().for_each(|b| *b ^= 1);
                        records.push(|out| out.extend_from_slice(record)).unwrap();
                    }
                }
            }
            drop(records);
            assert!(!storage.exists(TEMP).unwrap());
        }
    }
    drop(s);
    engine.stop(&Quiet).unwrap();
}
