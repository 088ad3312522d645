//! A real instance on a real filesystem that fills up. Statements fail with 53100, and nothing that
//! was acknowledged is lost. A rollback needs no space, and neither does a start. Work goes on when
//! there is room again, whether somebody makes it outside or rows are deleted.
//!
//! The test needs the right to mount an image of a filesystem. Without that right it says so and
//! does nothing. (The same is tested without any right on simulated storage, at every write:
//! `engine`, tests/faults.rs.)

use postgres::Client;
use postgres::error::SqlState;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::processes::Instance;

const IMAGE_BYTES: u64 = 64 << 20;
/// The size of a foreign file, which the test removes to make room.
const BALLAST_BYTES: u64 = 8 << 20;
const SETTINGS: [&str; 10] = [
    "--set",
    "redo_file_size=4MB",
    "--set",
    "preallocate_size=1MB",
    "--set",
    "undo_cap=16MB",
    "--set",
    "max_sessions=20",
    "--set",
    "recovery_target=4MB",
];

/// A filesystem in a file, mounted until this is dropped.
struct Mounted {
    at: PathBuf,
}

impl Mounted {
    /// Mounts an image; `None` if this process may not mount.
    fn new(image: &Path, at: &Path) -> Option<Mounted> {
        let run = |program: &str, args: &[&Path]| {
            let out = Command::new(program).args(args).output();
            match out {
                Ok(out) if out.status.success() => true,
                Ok(out) => {
                    println!("{program}: {}", String::from_utf8_lossy(&out.stderr));
                    false
                }
                Err(e) => {
                    println!("{program}: {e}");
                    false
                }
            }
        };
        let file = std::fs::File::create(image).expect("image");
        file.set_len(IMAGE_BYTES).expect("image");
        std::fs::create_dir_all(at).expect("mount point");
        // No blocks are kept for root, because the test may be root.
        let made = run(
            "mkfs.ext4",
            &["-q".as_ref(), "-m".as_ref(), "0".as_ref(), image],
        );
        let mounted = made && run("mount", &["-o".as_ref(), "loop".as_ref(), image, at]);
        mounted.then(|| Mounted {
            at: at.to_path_buf(),
        })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(&self.at).status();
        if !done.is_ok_and(|s| s.success()) {
            eprintln!("{} stays mounted", self.at.display());
        }
    }
}

/// Writes zeros until the filesystem is full to the last block.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).expect("filler");
    let zeros = vec![0u8; 64 << 10];
    while file
        .write_all(&zeros)
        .and_then(|()| file.sync_data())
        .is_ok()
    {}
    while file
        .write_all(&zeros[..512])
        .and_then(|()| file.sync_data())
        .is_ok()
    {}
}

/// Inserts at most `most` rows from `next` on. True if the disk became full.
fn insert_until_full(c: &mut Client, next: &mut i64, most: i64) -> bool {
    let text = "f".repeat(5000);
    for _ in 0..most {
        match c.execute("insert into filler values ($1, $2)", &[&*next, &text]) {
            Ok(_) => *next += 1,
            Err(e) => {
                assert_eq!(e.code(), Some(&SqlState::DISK_FULL), "{e:?}");
                return true;
            }
        }
    }
    false
}

fn number(c: &mut Client, query: &str) -> i64 {
    c.query_one(query, &[]).expect(query).get(0)
}

/// Checks that what was acknowledged is there, and nothing else.
fn check(c: &mut Client, rows: i64, what: &str) {
    assert_eq!(number(c, "select count(*) from filler"), rows, "{what}");
    assert_eq!(
        number(c, "select sum(v)::bigint from accounts"),
        5000,
        "{what}"
    );
}

/// Makes a transaction of many changes that is rolled back, or that the full disk stops on its way.
fn roll_back_much(c: &mut Client) {
    let mut t = c.transaction().expect("begin");
    let text = "r".repeat(3000);
    for id in 0..50 {
        let changed = t.execute(
            "update accounts set v = v + 1, note = $2 where id = $1",
            &[&id, &text],
        );
        if let Err(e) = changed {
            assert_eq!(e.code(), Some(&SqlState::DISK_FULL), "{e:?}");
            break;
        }
    }
    t.rollback().expect("a rollback needs no space");
}

#[test]
fn statements_fail_on_a_full_disk_and_nothing_else_does() {
    let mut instance = Instance::prepare("disk-full", &SETTINGS);
    let image = instance.data().with_extension("img");
    let Some(mounted) = Mounted::new(&image, &instance.data()) else {
        println!("skipped: no right to mount a filesystem here");
        return;
    };
    let outside = |name: &str| mounted.at.join(name);
    // The database comes first: a directory with something else in it does not become one.
    instance.restart();
    let ballast = std::fs::File::create(outside("ballast")).expect("ballast");
    rustix::fs::fallocate(
        &ballast,
        rustix::fs::FallocateFlags::empty(),
        0,
        BALLAST_BYTES,
    )
    .expect("ballast");
    drop(ballast); // an open file keeps its space
    let mut c = instance.client();
    c.batch_execute(
        "create table filler (id bigint primary key, t text);
         create table accounts (id int primary key, v int not null, note text);
         create index accounts_v on accounts (v);
         insert into accounts select g, 100, repeat('n', 300) from generate_series(0, 49) g;",
    )
    .expect("schema");

    let mut rows = 0;
    assert!(
        insert_until_full(&mut c, &mut rows, 50_000),
        "the disk is never full"
    );
    println!("full after {rows} rows");
    fill(&outside("filler"));
    check(&mut c, rows, "full");
    roll_back_much(&mut c);
    check(&mut c, rows, "full, after a rollback");

    instance.kill();
    instance.restart();
    let mut c = instance.client();
    check(&mut c, rows, "started on the full disk");
    roll_back_much(&mut c);
    check(&mut c, rows, "started on the full disk, after a rollback");

    // Somebody makes room outside.
    std::fs::remove_file(outside("ballast")).expect("ballast");
    let before = rows;
    assert!(insert_until_full(&mut c, &mut rows, 50_000));
    println!(
        "{} more rows with {BALLAST_BYTES} bytes more",
        rows - before
    );
    assert!(rows > before + 200, "work goes on when there is room again");
    check(&mut c, rows, "full again");

    // Deleting makes room. It deletes a part at a time, because each part needs undo.
    std::fs::remove_file(outside("filler")).expect("filler");
    fill(&outside("filler"));
    let mut deleted = 0;
    while deleted < rows / 2 {
        deleted +=
            c.execute(
                "delete from filler where id >= $1 and id < $2",
                &[&deleted, &(deleted + 20)],
            )
            .expect("deleting needs no more than undo, which is used again") as i64;
    }
    let mut next = rows;
    assert!(
        !insert_until_full(&mut c, &mut next, deleted / 2),
        "what was deleted makes room"
    );
    check(&mut c, next - deleted, "rows replaced");

    drop(c);
    instance.stop();
    instance.verify();
    drop(mounted);
}
