//! Questions and answers as bytes: the kinds of messages and their fields. The bytes behind the
//! fields are not looked into here.

use super::{PAGE_BYTES, QUESTION_MAX_BYTES};
use wire::{Bad, Reader, Tagged, Writer, fields, tagged};

/// The fields of a message. The frame's kind is its tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Head {
    /// Asks for a page of the answer to the question behind the fields. `id` is the question's
    /// number.
    Ask { id: u64, page: u32 },
    /// Brings a page of an answer, which is behind the fields.
    Answer(Page),
    /// Says that all of the answer has come.
    End { id: u64 },
}

tagged! {
    struct Heads: u16 for Head {
        Ask = 240 { id, page },
        Answer = 241 (page),
        End = 242 { id },
    }
}

/// Says which page of an answer the bytes behind are. If `pages` is zero, the bytes say why there
/// is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Page {
    pub id: u64,
    pub making: u64,
    pub page: u32,
    pub pages: u32,
}

fields! { impl Page { id, making, page, pages } }

impl Head {
    pub fn kind(&self) -> u16 {
        Heads::tag(self)
    }

    /// The bytes of the message.
    pub fn encode(&self, behind: &[u8]) -> Vec<u8> {
        let mut body = Vec::with_capacity(size_of::<Page>() + behind.len());
        let mut w = Writer::new(&mut body);
        Heads::put_fields(self, &mut w);
        w.bytes(behind);
        body
    }

    /// Reads a message of this kind; also returns the bytes behind its fields.
    pub fn decode(kind: u16, body: &[u8]) -> Result<(Head, &[u8]), Bad> {
        let mut r = Reader::new(body);
        let head = Heads::get_fields(kind, &mut r)?;
        let behind = r.rest(match head {
            Head::Ask { .. } => QUESTION_MAX_BYTES,
            Head::Answer(_) => PAGE_BYTES,
            Head::End { .. } => 0,
        })?;
        if let Head::Answer(page) = head {
            let last = page.pages.saturating_sub(1);
            // All pages but the last are full, so that nobody can keep this instance busy with
            // empty ones.
            let whole = page.page >= last || behind.len() == PAGE_BYTES;
            if page.page > last || !whole {
                return Err(Bad::because("a page is beyond the last, or not full"));
            }
        }
        Ok((head, behind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::fuzz::{self, Family};

    type Whole = (Head, Vec<u8>);

    fn page(page: u32, pages: u32) -> Head {
        let (id, making) = (1 << 32 | 1, 2);
        Head::Answer(Page {
            id,
            making,
            page,
            pages,
        })
    }

    fn samples() -> Vec<Whole> {
        vec![
            (Head::Ask { id: 5, page: 6 }, b"how".to_vec()),
            (page(1, 2), b"well".to_vec()),
            (page(0, 0), b"why".to_vec()),
            (Head::End { id: 7 }, vec![]),
        ]
    }

    #[test]
    fn the_bytes_of_messages_are_pinned() {
        let pinned: [(u16, &[u8]); 4] = [
            (240, b"\x05\0\0\0\0\0\0\0\x06\0\0\0how"),
            (
                241,
                b"\x01\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0well",
            ),
            (
                241,
                b"\x01\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0why",
            ),
            (242, b"\x07\0\0\0\0\0\0\0"),
        ];
        for ((head, behind), (kind, bytes)) in samples().iter().zip(pinned) {
            assert_eq!((head.kind(), &head.encode(behind)[..]), (kind, bytes));
            assert_eq!(Head::decode(kind, bytes), Ok((*head, &behind[..])));
        }
        assert!(Head::decode(239, &[]).is_err() && Head::decode(243, &[]).is_err());
    }

    #[test]
    fn nothing_makes_reading_a_message_panic() {
        let family = Family {
            kinds: fuzz::kinds::<Heads, Head>(),
            encode: &|(head, behind): &Whole| {
                [&head.kind().to_le_bytes(), &head.encode(behind)[..]].concat()
            },
            decode: &|bytes| {
                let mut r = Reader::new(bytes);
                let kind = r.get()?;
                let (head, behind) = Head::decode(kind, r.rest(usize::MAX)?)?;
                Ok((head, behind.to_vec()))
            },
        };
        family.check(&samples());
    }
}
