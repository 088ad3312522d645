//! A change that is in the log and cannot be applied ends the process, whichever thread made it.
//! The test runs in a process of its own: this file starts itself again.

use crate::common::*;
use block::{Dba, FileId, ObjectId, Op};
use cache::{Change, RecordHeader};
use std::os::unix::process::ExitStatusExt;
use testkit::child;

const CHILD: &str = "BRAID_TEST_CHILD";
const SIGABRT: i32 = 6;

fn change_that_cannot_be_applied() {
    let s = create();
    let instance = Instance::open(&s).unwrap();
    let dba = Dba::new(FileId::DATA, 1);
    let log = |op, payload: &[u8]| {
        let pin = instance.cache.pin_new(dba).unwrap();
        instance.cache.reserve().unwrap();
        let mut guard = pin.write();
        let change = Change {
            guard: &mut guard,
            op,
            object: ObjectId(9),
            payload,
        };
        instance
            .cache
            .change(RecordHeader::NONE, &mut [change], |_, _| {});
    };
    log(Op::HeapFormat, &[]);
    // There is no such row. A session that caught the panic would go on with a block that lacks
    // what the log has.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        log(Op::HeapPrune, &[1, 0, 7, 0])
    }));
}

#[test]
fn a_logged_change_that_cannot_be_applied_ends_the_process() {
    if std::env::var_os(CHILD).is_some() {
        return change_that_cannot_be_applied();
    }
    let test = "a_logged_change_that_cannot_be_applied_ends_the_process";
    let mut child = child::command(module_path!(), test);
    let output = child.env(CHILD, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(SIGABRT), "{said}");
    assert!(said.contains("a logged change can be applied"), "{said}");
}
