//! PostgreSQL's names of encodings, and the other names under which it takes them.

/// The names, at the places of their numbers.
#[rustfmt::skip]
pub const NAMES: [&str; 42] = [
    "SQL_ASCII", "EUC_JP", "EUC_CN", "EUC_KR", "EUC_TW", "EUC_JIS_2004", "UTF8", "MULE_INTERNAL",
    "LATIN1", "LATIN2", "LATIN3", "LATIN4", "LATIN5", "LATIN6", "LATIN7", "LATIN8", "LATIN9",
    "LATIN10", "WIN1256", "WIN1258", "WIN866", "WIN874", "KOI8R", "WIN1251", "WIN1252",
    "ISO_8859_5", "ISO_8859_6", "ISO_8859_7", "ISO_8859_8", "WIN1250", "WIN1253", "WIN1254",
    "WIN1255", "WIN1257", "KOI8U", "SJIS", "BIG5", "GBK", "UHC", "GB18030", "JOHAB",
    "SHIFT_JIS_2004",
];

/// Names that are more than a spelling of those in [`NAMES`].
#[rustfmt::skip]
const OTHERS: &[(&str, &str)] = &[
    ("abc", "WIN1258"), ("alt", "WIN866"), ("koi8", "KOI8R"), ("mskanji", "SJIS"),
    ("shiftjis", "SJIS"), ("tcvn", "WIN1258"), ("tcvn5712", "WIN1258"), ("unicode", "UTF8"),
    ("vscii", "WIN1258"), ("win", "WIN1251"),
    ("iso88591", "LATIN1"), ("iso88592", "LATIN2"), ("iso88593", "LATIN3"), ("iso88594", "LATIN4"),
    ("iso88599", "LATIN5"), ("iso885910", "LATIN6"), ("iso885913", "LATIN7"),
    ("iso885914", "LATIN8"), ("iso885915", "LATIN9"), ("iso885916", "LATIN10"),
    ("win932", "SJIS"), ("win936", "GBK"), ("win949", "UHC"), ("win950", "BIG5"),
    ("windows932", "SJIS"), ("windows936", "GBK"), ("windows949", "UHC"), ("windows950", "BIG5"),
    ("windows866", "WIN866"), ("windows874", "WIN874"),
    ("windows1250", "WIN1250"), ("windows1251", "WIN1251"), ("windows1252", "WIN1252"),
    ("windows1253", "WIN1253"), ("windows1254", "WIN1254"), ("windows1255", "WIN1255"),
    ("windows1256", "WIN1256"), ("windows1257", "WIN1257"), ("windows1258", "WIN1258"),
];

/// PostgreSQL looks up no longer name.
const MAX_NAME_BYTES: usize = 63;

/// Letters and digits of a name, in lower case: all that counts.
fn clean(name: &str) -> String {
    let counts = name.chars().filter(char::is_ascii_alphanumeric);
    counts.map(|c| c.to_ascii_lowercase()).collect()
}

/// The number of the encoding of that name.
pub fn find(name: &str) -> Option<u8> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let wanted = clean(name);
    let other = OTHERS.iter().find(|(known, _)| *known == wanted);
    let wanted = other.map_or(wanted, |(_, name)| clean(name));
    let found = NAMES.iter().position(|known| clean(known) == wanted)?;
    u8::try_from(found).ok()
}
