//! The byte diagrams of README.md and of the module heads, byte for byte. A change of the format
//! changes this file, the diagram and the format's version.

use block::heap::{self, RowHead};
use block::index::{Builder, FreeBlock, meta_push_payload};
use block::record::{RecordWriter, set_scn};
use block::sequence::{SequenceParams, SequenceState, mark_payload};
use block::space::{self, Extent, SegmentKind};
use block::value::DatumRef;
use block::*;

const HOME: Dba = Dba::new(FileId(1), 0x0203_0405);

fn formatted(op: Op, payload: &[u8]) -> Box<BlockBuf> {
    let mut b = BlockBuf::zeroed();
    b.format(HOME, ObjectId(0x0708), op.formats().expect("it formats"));
    apply(op, &mut b, payload).expect("it applies");
    b
}

/// Bytes of parts put one after the other, little endian.
macro_rules! bytes {
    ($($part:expr),* $(,)?) => {{
        let mut all: Vec<u8> = Vec::new();
        $(all.extend_from_slice(&$part);)*
        all
    }};
}

#[track_caller]
fn at(b: &BlockBuf, from: usize, wanted: &[u8]) {
    assert_eq!(&b.0[from..from + wanted.len()], wanted, "from byte {from}");
}

/// Pins `version u8 | type u8 | flags u16 | CRC32C u32 | address u64 | SCN u64 | object u32 |
/// reserved u32`.
#[test]
fn the_header() {
    let mut b = formatted(Op::HeapFormat, &[]);
    b.set_scn(Scn(0x1112));
    b.seal();
    at(&b, 0, &[1, 5, 0, 0]);
    let mut whole = b.0;
    whole[4..8].fill(0);
    at(&b, 4, &crc32c::crc32c(&whole).to_le_bytes());
    let address = bytes![0x0203_0405u32.to_le_bytes(), 1u16.to_le_bytes(), [0, 0]];
    at(&b, 8, &address);
    at(&b, 16, &0x1112u64.to_le_bytes());
    at(&b, 24, &bytes![0x0708u32.to_le_bytes(), [0; 4]]);
    let types = [
        (Op::HeapFormat, 5),
        (Op::UndoFormat, 7),
        (Op::SpaceMapFormat, 2),
        (Op::SegmentFormat, 3),
        (Op::ExtentMapFormat, 4),
        (Op::SequenceFormat, 9),
        (Op::IndexFormat, 6),
        (Op::IndexMetaFormat, 10),
    ];
    for (op, number) in types {
        assert_eq!(op.formats().unwrap() as u8, number, "{op:?}");
    }
}

/// Pins `slots u16 | lowest row byte u16 | free bytes u16 | free slots u16 | slots: offset u16,
/// allocated u16 ... free ... rows`.
#[test]
fn a_heap_block() {
    let mut b = formatted(Op::HeapFormat, &[]);
    at(
        &b,
        32,
        &bytes![[0, 0], 8192u16.to_le_bytes(), 8152u16.to_le_bytes(), [0, 0]],
    );
    let head = RowHead {
        flags: heap::DELETED,
        stamp: Stamp(0x2122),
        undo: UndoPtr(0x3132),
    };
    let mut payload = Vec::new();
    heap::row_payload(0, head, b"a row of twenty bytes", &mut payload);
    apply(Op::HeapInsert, &mut b, &payload).unwrap();
    let row = 8192 - 41;
    let directory = bytes![
        1u16.to_le_bytes(),
        (row as u16).to_le_bytes(),
        (8152u16 - 4 - 41).to_le_bytes(),
        [0, 0],
        (row as u16).to_le_bytes(),
        41u16.to_le_bytes(),
    ];
    at(&b, 32, &directory);
    let stored = bytes![
        [1, 0],
        21u16.to_le_bytes(),
        0x2122u64.to_le_bytes(),
        0x3132u64.to_le_bytes(),
        *b"a row of twenty bytes",
    ];
    at(&b, row, &stored);
    let flags = [heap::DELETED, heap::PIECE, heap::CHAINED, heap::NO_KEY];
    assert_eq!(flags, [1, 2, 4, 8]);
    at(&b, 28, &[0; 4]);
    apply(
        Op::HeapSetSharers,
        &mut b,
        &heap::sharers_payload(0, 0b10_0001),
    )
    .unwrap();
    at(&b, 28, &[1, 0, 0, 0]);
    at(&b, row, &[1, 0b10_0001, 21, 0]);
}

/// Pins `columns u16 | NULL bitmap | values; of variable length: length u8, or 255 and u32`.
#[test]
fn a_row() {
    let mut out = Vec::new();
    let long = "x".repeat(300);
    let values = [
        DatumRef::Int4(5),
        DatumRef::Null,
        DatumRef::Text("hi"),
        DatumRef::Text(&long),
    ];
    row::encode(&values, &mut out);
    let wanted = bytes![
        4u16.to_le_bytes(),
        [0b10],
        5i32.to_le_bytes(),
        [2],
        *b"hi",
        [255],
        300u32.to_le_bytes(),
        *long.as_bytes().first_chunk::<300>().unwrap(),
    ];
    assert_eq!(out, wanted);
}

/// Pins the head of an index block, its fences, a slot, and an entry with room for a stamp.
#[test]
fn an_index_block() {
    let right = Dba::new(FileId(1), 77);
    let mut list = Builder::new(0, b"pa", Some(b"pz"), right, None);
    list.push(b"pkey-and-row-id", Some(0x4142));
    let b = formatted(Op::IndexFormat, &list.finish());
    let rest = b"and-row-id"; // the prefix "p" and the head "key-" stand elsewhere
    let entry = 8192 - (2 + rest.len() + 8);
    let head = bytes![
        [0, 0],
        1u16.to_le_bytes(),
        (entry as u16).to_le_bytes(),
        [0, 0],
        right.0.to_le_bytes(),
        1u16.to_le_bytes(),
        2u16.to_le_bytes(),
        2u16.to_le_bytes(),
        [0, 0],
        68u16.to_le_bytes(),
        [0; 6],
        *b"papz",
    ];
    at(&b, 32, &head);
    at(&b, 68, &bytes![*b"key-", (entry as u16).to_le_bytes()]);
    let stored = bytes![
        (14u16 | 1 << 15).to_le_bytes(),
        *rest,
        0x4142u64.to_le_bytes()
    ];
    at(&b, entry, &stored);
}

/// Pins `owner u32` of each unit, and `extents u32 | kind u8 | reserved 3 | extents: first u64 |
/// blocks u24, instance u8`.
#[test]
fn space() {
    let mut map = formatted(Op::SpaceMapFormat, &[]);
    let payload = space::set_payload(3, 1, ObjectId(0x5152));
    apply(Op::SpaceSet, &mut map, &payload).unwrap();
    at(&map, 32, &bytes![[0; 12], 0x5152u32.to_le_bytes(), [0; 4]]);
    let extent = Extent {
        first: Dba::new(FileId(1), 16),
        blocks: 0x0a_0b0c,
        instance: InstanceId(3),
    };
    let payload = space::segment_payload(SegmentKind::Index, extent);
    let mut header = formatted(Op::SegmentFormat, &payload);
    let map = formatted(Op::ExtentMapFormat, &payload);
    let listed = bytes![
        1u32.to_le_bytes(),
        [2, 0, 0, 0],
        Dba::new(FileId(1), 16).0.to_le_bytes(),
        [0x0c, 0x0b, 0x0a, 3],
    ];
    at(&header, 32, &listed);
    at(&map, 32, &listed);
    for _ in 1..678 {
        apply(
            Op::SegmentAddExtent,
            &mut header,
            &space::extent_payload(extent),
        )
        .unwrap();
    }
    let link = space::link_payload(Dba::new(FileId(1), 24), InstanceId(4));
    apply(Op::SegmentAddExtent, &mut header, &link).unwrap();
    let link = bytes![Dba::new(FileId(1), 24).0.to_le_bytes(), [0, 0, 0, 4]];
    at(&header, 40 + 678 * 12, &link);
}

#[test]
fn a_redo_record() {
    let mut bytes = Vec::new();
    let mut w = RecordWriter::new(&mut bytes, TxnId(0x6162), UndoPtr(0x7172));
    w.vector(HOME, ObjectId(9), Op::HeapInsert, Some(Scn(10)), b"pay");
    w.finish();
    set_scn(&mut bytes, Scn(11));
    let wanted = bytes![
        (32u32 + 24 + 3).to_le_bytes(),
        1u16.to_le_bytes(),
        [0, 0],
        11u64.to_le_bytes(),
        0x6162u64.to_le_bytes(),
        0x7172u64.to_le_bytes(),
        HOME.0.to_le_bytes(),
        9u32.to_le_bytes(),
        100u16.to_le_bytes(),
        3u16.to_le_bytes(),
        10u64.to_le_bytes(),
        *b"pay",
    ];
    assert_eq!(bytes, wanted);
}

#[test]
fn a_sequence_and_a_list_of_freed_blocks() {
    let params = SequenceParams {
        start: 1,
        increment: 2,
        min: 3,
        max: 4,
        cache: 5,
        cycle: true,
    };
    let mut b = formatted(Op::SequenceFormat, &params.encode());
    let state = SequenceState {
        draw: 6,
        mark: 7,
        exhausted: true,
    };
    apply(Op::SequenceMark, &mut b, &mark_payload(state)).unwrap();
    let numbers = |list: &[u64]| {
        list.iter()
            .flat_map(|n| n.to_le_bytes())
            .collect::<Vec<_>>()
    };
    at(&b, 32, &numbers(&[6, 7, 1, 1, 2, 3, 4]));
    at(&b, 88, &bytes![5u32.to_le_bytes(), [1, 0, 0, 0]]);

    let mut list = formatted(Op::IndexMetaFormat, &[]);
    let free = FreeBlock {
        dba: HOME,
        at: Scn(8),
    };
    apply(Op::IndexMetaPush, &mut list, &meta_push_payload(free)).unwrap();
    let entry = bytes![HOME.0.to_le_bytes(), 8u64.to_le_bytes()];
    at(
        &list,
        32,
        &bytes![
            1u16.to_le_bytes(),
            [0; 6],
            *entry.first_chunk::<16>().unwrap()
        ],
    );
}
