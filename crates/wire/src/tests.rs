//! Primitives, lists and the two macros; bytes that are cut short, too long, out of range, or count
//! more than they have.

use crate::fuzz::check_tagged;
use crate::{Bad, Codec, Reader, Rest, Short, Tagged, Wire, Writer, decode, decode_as};
use block::{Dba, FileId, InstanceId, Scn, TxnId};
use fusion::{Bucket, Epoch, Granule, Term, Turn};
use std::borrow::Cow;
use std::fmt::Debug;

fn bytes_of<T: Wire>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).put(value);
    bytes
}

fn bytes_as<C: Codec<T>, T>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    C::put(value, &mut Writer::new(&mut bytes));
    bytes
}

fn pinned<T: Wire + PartialEq + Debug>(value: T, bytes: &[u8]) {
    assert_eq!(bytes_of(&value), bytes, "{value:?}");
    assert_eq!(decode::<T>(bytes).as_ref(), Ok(&value));
    for n in 0..bytes.len() {
        assert!(decode::<T>(&bytes[..n]).is_err(), "{value:?} cut to {n}");
    }
    let longer = [bytes, &[0]].concat();
    let what = decode::<T>(&longer).expect_err("a byte more").what();
    assert_eq!(what, "it is too long");
}

#[derive(Clone, PartialEq, Debug)]
struct Pair {
    first: u16,
    second: Option<u8>,
}
crate::fields! { impl Pair { second, first } }

#[derive(Clone, PartialEq, Debug)]
enum Message<'a> {
    Nothing,
    Numbers(u8, u64),
    Pairs {
        all: Vec<Pair>,
        names: Cow<'a, [Scn]>,
    },
}

type Names = Short<crate::Own, 1, 3>;
crate::tagged! {
    struct Messages: u16 for Message<'a> {
        Nothing = 7,
        Numbers = 0x0102 (small, large),
        Pairs = 300 { all, names as Names },
    }
}

fn samples() -> Vec<Message<'static>> {
    let (first, second) = (0x0201, Some(3));
    let pair = Pair { first, second };
    vec![
        Message::Nothing,
        Message::Numbers(4, 5),
        Message::Pairs {
            all: vec![pair],
            names: vec![Scn(9)].into(),
        },
    ]
}

#[test]
fn primitives_are_pinned() {
    pinned(0x12_u8, &[0x12]);
    pinned(0x0102_u16, &[2, 1]);
    pinned(0x0102_0304_u32, &[4, 3, 2, 1]);
    pinned(1_u64 << 63, &[0, 0, 0, 0, 0, 0, 0, 0x80]);
    pinned(-2_i64, &[0xfe, 255, 255, 255, 255, 255, 255, 255]);
    pinned(false, &[0]);
    pinned(true, &[1]);
    pinned(None::<u16>, &[0]);
    pinned(Some(5_u16), &[1, 5, 0]);
    pinned((1_u8, 2_u16), &[1, 2, 0]);
    pinned([1_u16, 2], &[1, 0, 2, 0]);
    pinned(vec![7_u8, 8], &[2, 0, 0, 0, 7, 8]);
    assert_eq!(decode::<bool>(&[2]).unwrap_err().offset(), Some(1));
}

#[test]
fn types_are_pinned_and_stay_within_their_range() {
    pinned(Dba::new(FileId(2), 3), &[3, 0, 0, 0, 2, 0, 0, 0]);
    pinned(InstanceId(100), &[100, 0]);
    let term = Term {
        number: 6,
        master: InstanceId(2),
    };
    pinned(term, &[6, 0, 0, 0, 2, 0]);
    pinned(Term::BY_HASH, &[0; 6]);
    let turn = Turn {
        epoch: Epoch(3),
        term,
        number: 9,
    };
    let bytes = [
        [3, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0],
        [0, 2, 0, 9, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    pinned(turn, &bytes);
    pinned(Bucket::Hash(258), &[0, 2, 1]);
    let granule = Bucket::Granule(Granule(9), term);
    pinned(granule, &[1, 9, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 2, 0]);
    for instance in [0_u16, 101, u16::MAX] {
        assert!(decode::<InstanceId>(&bytes_of(&instance)).is_err());
        let txn = TxnId(u64::from(instance) << 48 | 1);
        assert!(decode::<TxnId>(&bytes_of(&txn)).is_err());
        let term = bytes_of(&(1_u32, instance));
        assert!(decode::<Term>(&term).is_err());
    }
    assert!(decode::<Scn>(&bytes_of(&(1_u64 << 62))).is_err());
    assert!(decode::<Scn>(&bytes_of(&((1_u64 << 62) - 1))).is_ok());
}

/// Fields stand in the order of the list, not in that of the declaration; so do tags and names.
#[test]
fn lists_of_fields_and_kinds_are_what_is_written() {
    let pair = Pair {
        first: 0x0201,
        second: Some(3),
    };
    pinned(pair, &[1, 3, 1, 2]);
    let bytes: Vec<_> = samples().iter().map(bytes_as::<Messages, _>).collect();
    assert_eq!(bytes[0], [7, 0]);
    assert_eq!(bytes[1], [2, 1, 4, 5, 0, 0, 0, 0, 0, 0, 0]);
    let third = [
        [44, 1, 1, 0, 0, 0, 1, 3, 1, 2],
        [1, 0, 9, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    assert_eq!(bytes[2], third);
    assert_eq!(
        <Messages as Tagged<Message<'_>>>::TAGS,
        [(7, "Nothing"), (258, "Numbers"), (300, "Pairs")]
    );
    for (message, bytes) in samples().iter().zip(&bytes) {
        let tag = Messages::tag(message);
        assert_eq!(tag.to_le_bytes(), bytes[..2]);
        let mut fields = Vec::new();
        Messages::put_fields(message, &mut Writer::new(&mut fields));
        assert_eq!(fields, bytes[2..], "the tag may travel elsewhere");
        let mut r = Reader::new(&fields);
        assert_eq!(Messages::get_fields(tag, &mut r).as_ref(), Ok(message));
        r.finish().unwrap();
    }
    assert!(!crate::are_distinct(&[1, 2, 1]) && crate::are_distinct(&[1, 2, 3]));
}

#[test]
fn a_refusal_says_what_where_and_in_which_field() {
    let refused = |bytes: &[u8]| decode_as::<Messages, Message<'_>>(bytes).unwrap_err();
    let bad = refused(&[44, 1, 1, 0, 0, 0, 2]);
    assert_eq!(bad.field(), Some(("Pairs", "all")));
    let said = "a flag is neither set nor clear, at byte 7, in Pairs.all";
    assert_eq!(bad.to_string(), said);
    let bad = refused(&[2, 1, 4, 5]);
    assert_eq!(
        bad.to_string(),
        "it is cut short, at byte 3, in Numbers.large"
    );
    let bad = refused(&[8, 0]);
    let said = "it is of no kind that there is, at byte 2";
    assert_eq!(bad.to_string(), said);
    assert_eq!(Bad::because("no").to_string(), "no");
}

#[test]
fn hostile_bytes_of_a_family_are_refused() {
    check_tagged::<Messages, Message<'_>>(&samples());
}

/// A count alone takes no memory: it is refused if less follows, and only as much is allocated as
/// follows.
#[test]
fn counts_take_no_memory_that_does_not_follow() {
    for n in [3, 0x7fff_ffff, u32::MAX] {
        let bytes = [&n.to_le_bytes()[..], &[1, 1]].concat();
        let bad = decode::<Vec<u8>>(&bytes).unwrap_err();
        assert_eq!(bad.what(), "it counts more than follows");
    }
    // Each is at least one byte, so a count of two may hold; there is no memory for two of a
    // kibibyte in a message of six bytes.
    let mut r = Reader::new(&[1, 1, 1, 1, 1, 1]);
    let all = r.values(2, |r| Ok((r.get::<u8>()?, [0_u64; 128]))).unwrap();
    assert_eq!(all.len(), 2);
    let mut r = Reader::new(&[1, 1]);
    let all = r.values(0, |r| r.get::<[u64; 2]>()).unwrap();
    assert_eq!(all.capacity(), 0);
}

#[test]
fn short_lists_keep_their_limits() {
    type Three = Short<crate::Own, 1, 3>;
    for n in [0_u8, 4, 255] {
        let bytes = [vec![n, 0], vec![1; usize::from(n)]].concat();
        let got = decode_as::<Three, Cow<'_, [u8]>>(&bytes);
        let what = if n == 0 { "few" } else { "many" };
        assert_eq!(
            got.unwrap_err().what(),
            format!("a list has too {what} values")
        );
    }
    let three: Cow<'_, [u8]> = vec![1, 2, 3].into();
    assert_eq!(decode_as::<Three, _>(&[3, 0, 1, 2, 3]), Ok(three));
}

#[test]
#[should_panic(expected = "a list in a message has 1 to 3 values, this one 4")]
fn a_list_beyond_its_limit_is_not_sent() {
    bytes_as::<Short<crate::Own, 1, 3>, _>(&Cow::Borrowed(&[0_u8; 4][..]));
}

#[test]
fn the_rest_of_a_message_is_whole_and_limited() {
    let numbers = vec![1_u16, 2];
    let bytes = bytes_as::<Rest, _>(&numbers);
    assert_eq!(bytes, [1, 0, 2, 0]);
    assert_eq!(decode_as::<Rest, Vec<u16>>(&bytes), Ok(numbers));
    assert_eq!(decode_as::<Rest, Vec<u16>>(&[]), Ok(vec![]));
    assert!(decode_as::<Rest, Vec<u16>>(&bytes[..3]).is_err());
    let mut r = Reader::new(&bytes);
    assert_eq!(r.rest(3).unwrap_err().what(), "more follows than may");
    assert_eq!(r.rest(4), Ok(&bytes[..]));
    assert!(r.is_at_end() && r.finish().is_ok());
}
