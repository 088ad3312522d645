//! Tables of the encodings that have one byte for each character.

use std::sync::OnceLock;

use encoding_rs as rs;

use crate::Encoding;
use crate::names::NAMES;

/// What the bytes from 0x80 stand for.
pub struct Table {
    chars: [Option<char>; 128],
    /// The bytes above 127 by character, sorted.
    bytes: Vec<(char, u8)>,
}

/// One slot for each encoding; a table is made when it is first asked for.
static TABLES: [OnceLock<Option<Table>>; NAMES.len()] = [const { OnceLock::new() }; NAMES.len()];

/// Where the characters of an encoding come from.
enum Chars {
    /// As in ISO 8859-1, but for these: each byte has the character of its number.
    Latin1(&'static [(u8, char)]),
    /// As browsers have it, but for these.
    Web(&'static rs::Encoding, &'static [(u8, char)]),
    /// As browsers have it, but undefined where they have a control character, and for these bytes.
    Windows(&'static rs::Encoding, &'static [u8]),
}

/// In ISO 8859-9 Turkish letters stand where ISO 8859-1 has Icelandic ones.
const TURKISH: &[(u8, char)] = &[
    (0xd0, 'Ğ'),
    (0xdd, 'İ'),
    (0xde, 'Ş'),
    (0xf0, 'ğ'),
    (0xfd, 'ı'),
    (0xfe, 'ş'),
];

/// Browsers have the Belarusian letters of KOI8-RU there.
const UKRAINIAN: &[(u8, char)] = &[(0xae, '╝'), (0xbe, '╬')];

#[rustfmt::skip]
fn chars(encoding: Encoding) -> Option<Chars> {
    use Chars::{Latin1, Web, Windows};
    Some(match encoding.name() {
        "LATIN1" => Latin1(&[]),
        "LATIN2" => Web(rs::ISO_8859_2, &[]),
        "LATIN3" => Web(rs::ISO_8859_3, &[]),
        "LATIN4" => Web(rs::ISO_8859_4, &[]),
        "LATIN5" => Latin1(TURKISH),
        "LATIN6" => Web(rs::ISO_8859_10, &[]),
        "LATIN7" => Web(rs::ISO_8859_13, &[]),
        "LATIN8" => Web(rs::ISO_8859_14, &[]),
        "LATIN9" => Web(rs::ISO_8859_15, &[]),
        "LATIN10" => Web(rs::ISO_8859_16, &[]),
        "ISO_8859_5" => Web(rs::ISO_8859_5, &[]),
        "ISO_8859_6" => Web(rs::ISO_8859_6, &[]),
        "ISO_8859_7" => Web(rs::ISO_8859_7, &[]),
        "ISO_8859_8" => Web(rs::ISO_8859_8, &[]),
        "KOI8R" => Web(rs::KOI8_R, &[]),
        "KOI8U" => Web(rs::KOI8_U, UKRAINIAN),
        "WIN866" => Web(rs::IBM866, &[]),
        "WIN874" => Windows(rs::WINDOWS_874, &[]),
        "WIN1250" => Windows(rs::WINDOWS_1250, &[]),
        "WIN1251" => Windows(rs::WINDOWS_1251, &[]),
        "WIN1252" => Windows(rs::WINDOWS_1252, &[]),
        "WIN1253" => Windows(rs::WINDOWS_1253, &[]),
        "WIN1254" => Windows(rs::WINDOWS_1254, &[]),
        "WIN1255" => Windows(rs::WINDOWS_1255, &[0xca]),
        "WIN1256" => Windows(rs::WINDOWS_1256, &[]),
        "WIN1257" => Windows(rs::WINDOWS_1257, &[]),
        "WIN1258" => Windows(rs::WINDOWS_1258, &[]),
        _ => return None,
    })
}

impl Chars {
    fn of(&self, byte: u8) -> Option<char> {
        match self {
            Chars::Latin1(but) => Some(other(but, byte).unwrap_or(char::from(byte))),
            Chars::Web(encoding, but) => other(but, byte).or_else(|| web(encoding, byte)),
            Chars::Windows(_, undefined) if undefined.contains(&byte) => None,
            Chars::Windows(encoding, _) => web(encoding, byte).filter(|c| !c.is_control()),
        }
    }
}

fn other(but: &[(u8, char)], byte: u8) -> Option<char> {
    but.iter().find(|(b, _)| *b == byte).map(|(_, c)| *c)
}

fn web(encoding: &'static rs::Encoding, byte: u8) -> Option<char> {
    let bytes = [byte];
    let text = encoding.decode_without_bom_handling_and_without_replacement(&bytes)?;
    text.chars().next()
}

impl Table {
    /// The table of an encoding of one byte a character; `None` of any other.
    pub fn of(encoding: Encoding) -> Option<&'static Table> {
        let slot = TABLES.get(usize::from(encoding.number()))?;
        slot.get_or_init(|| {
            let from = chars(encoding)?;
            let mut table = Table {
                chars: [None; 128],
                bytes: Vec::with_capacity(128),
            };
            for byte in 0x80..=0xff {
                if let Some(c) = from.of(byte) {
                    table.chars[usize::from(byte - 0x80)] = Some(c);
                    table.bytes.push((c, byte));
                }
            }
            table.bytes.sort_unstable();
            Some(table)
        })
        .as_ref()
    }

    /// The character of a byte from 0x80.
    pub fn decode(&self, byte: u8) -> Option<char> {
        self.chars[usize::from(byte & 0x7f)]
    }

    /// The byte of a character beyond ASCII.
    pub fn encode(&self, c: char) -> Option<u8> {
        let found = self.bytes.binary_search_by_key(&c, |(known, _)| *known);
        found.ok().map(|at| self.bytes[at].1)
    }
}
