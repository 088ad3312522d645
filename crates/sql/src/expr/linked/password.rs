//! `crypt` and `gen_salt`: passwords by bcrypt (`$2a$`) and by MD5 (`$1$`), as crypt(3) has them.

use blowfish::Blowfish;

use super::random;
use crate::error::{Error, Result};
use crate::expr::md5;

/// The digits of bcrypt, and those of the older methods.
const BCRYPT_DIGITS: &[u8; 64] =
    b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const OLD_DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// What bcrypt enciphers: six words.
const BCRYPT_TEXT: &[u8; 24] = b"OrpheanBeholderScryDoubt";
/// Bytes of a password that bcrypt looks at.
const BCRYPT_KEY_BYTES: usize = 72;
/// The characters before the salt: `$2a$06$`.
const BCRYPT_HEAD: usize = 7;
const BCRYPT_SALT_DIGITS: usize = 22;
const BCRYPT_ROUNDS: std::ops::RangeInclusive<i32> = 4..=31;
const BCRYPT_DEFAULT_ROUNDS: i32 = 6;
const MD5_SALT_DIGITS: usize = 8;
const MD5_ROUNDS: i32 = 1000;
const DES_ROUNDS: i32 = 25;

/// A new salt; `rounds`: 0 for as many as the method usually has.
pub fn salt(method: &str, rounds: i32) -> Result<String> {
    match method {
        "bf" => {
            let rounds = match rounds {
                0 => BCRYPT_DEFAULT_ROUNDS,
                rounds => rounds,
            };
            if !BCRYPT_ROUNDS.contains(&rounds) {
                return Err(wrong_rounds());
            }
            let salt = bcrypt_digits(&random::<16>()?);
            Ok(format!("$2a${rounds:02}${salt}"))
        }
        "md5" if !matches!(rounds, 0 | MD5_ROUNDS) => Err(wrong_rounds()),
        "md5" => {
            let digits = random::<MD5_SALT_DIGITS>()?;
            let digits = digits.map(|b| char::from(OLD_DIGITS[usize::from(b & 63)]));
            Ok(format!("$1${}", digits.iter().collect::<String>()))
        }
        "des" if !matches!(rounds, 0 | DES_ROUNDS) => Err(wrong_rounds()),
        "xdes" if rounds != 0 && !is_xdes_rounds(rounds) => Err(wrong_rounds()),
        "des" | "xdes" => Err(refused_des()),
        _ => Err(Error::new("22023", "gen_salt: Unknown salt algorithm")),
    }
}

pub fn crypt(password: &str, salt: &str) -> Result<String> {
    if salt.starts_with("$2a$") {
        return bcrypt(password, salt);
    }
    if salt.starts_with("$2x$") {
        return Err(Error::unsupported("crypt with a salt of $2x$"));
    }
    if let Some(rest) = salt.strip_prefix("$1$") {
        let digits = rest.split('$').next().unwrap_or_default();
        return md5_crypt(password.as_bytes(), prefix(digits, MD5_SALT_DIGITS));
    }
    match is_of_des(salt) {
        true => Err(refused_des()),
        false => Err(invalid_salt()),
    }
}

/// So many bytes of a text, or fewer if a character would be cut.
fn prefix(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// Whether DES takes it for a salt.
fn is_of_des(salt: &str) -> bool {
    let needed = if salt.starts_with('_') { 9 } else { 2 };
    salt.len() >= needed && !salt.starts_with('$')
}

/// Extended DES takes odd numbers of 24 bits.
fn is_xdes_rounds(rounds: i32) -> bool {
    (1..1 << 24).contains(&rounds) && rounds % 2 == 1
}

fn wrong_rounds() -> Error {
    Error::new("22023", "gen_salt: Incorrect number of rounds")
}

fn refused_des() -> Error {
    Error::unsupported("passwords by DES")
}

fn invalid_salt() -> Error {
    Error::new("22023", "invalid salt")
}

fn bcrypt(password: &str, salt: &str) -> Result<String> {
    let bytes = salt.as_bytes();
    let (tens, ones) = match bytes.get(4..BCRYPT_HEAD) {
        Some([tens @ b'0'..=b'3', ones @ b'0'..=b'9', b'$']) => (tens - b'0', ones - b'0'),
        _ => return Err(invalid_salt()),
    };
    let rounds = tens * 10 + ones;
    let digits = bytes.get(BCRYPT_HEAD..BCRYPT_HEAD + BCRYPT_SALT_DIGITS);
    let digits = digits.ok_or_else(invalid_salt)?;
    if !BCRYPT_ROUNDS.contains(&i32::from(rounds)) {
        return Err(invalid_salt());
    }
    let salt = bcrypt_bytes(digits).ok_or_else(invalid_salt)?;
    let mut key = password.as_bytes().to_vec();
    key.truncate(BCRYPT_KEY_BYTES);
    key.push(0);
    key.truncate(BCRYPT_KEY_BYTES);
    let mut state = Blowfish::bc_init_state();
    state.salted_expand_key(&salt, &key);
    for _ in 0..1_u64 << rounds {
        // The highest numbers of rounds take days.
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        state.bc_expand_key(&key);
        state.bc_expand_key(&salt);
    }
    let mut made = Vec::with_capacity(BCRYPT_TEXT.len());
    for pair in BCRYPT_TEXT.as_chunks::<8>().0 {
        let word = |at: usize| {
            let bytes = &pair[at..at + 4];
            bytes.iter().fold(0, |word, b| word << 8 | u32::from(*b))
        };
        let mut words = [word(0), word(4)];
        for _ in 0..64 {
            words = state.bc_encrypt(words);
        }
        made.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    }
    // The last byte is left out, by an old mistake that all have.
    made.pop();
    Ok(format!(
        "$2a${rounds:02}${}{}",
        bcrypt_digits(&salt),
        bcrypt_digits(&made)
    ))
}

/// Six bits a digit, the highest first.
fn bcrypt_digits(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 4 / 3 + 1);
    for part in bytes.chunks(3) {
        let mut bits = 0_u32;
        for at in 0..3 {
            bits = bits << 8 | u32::from(part.get(at).copied().unwrap_or(0));
        }
        for digit in 0..part.len() + 1 {
            let value = bits >> (18 - 6 * digit) & 63;
            digits.push(char::from(BCRYPT_DIGITS[value as usize]));
        }
    }
    digits
}

/// The bytes of a salt; `None`: there is something else than digits.
fn bcrypt_bytes(digits: &[u8]) -> Option<[u8; 16]> {
    let (mut bits, mut held, mut bytes) = (0_u32, 0, Vec::with_capacity(17));
    for digit in digits {
        let value = BCRYPT_DIGITS.iter().position(|d| d == digit)?;
        bits = bits << 6 | value as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    bytes.get(..16)?.try_into().ok()
}

/// The method that FreeBSD began, with a thousand rounds.
fn md5_crypt(password: &[u8], salt: &str) -> Result<String> {
    let twice = md5::bytes(&[password, salt.as_bytes(), password].concat());
    let mut first = [password, b"$1$", salt.as_bytes()].concat();
    let mut left = password.len();
    while left > 0 {
        first.extend_from_slice(&twice[..left.min(16)]);
        left = left.saturating_sub(16);
    }
    let mut bits = password.len();
    while bits > 0 {
        match bits & 1 {
            1 => first.push(0),
            _ => first.extend_from_slice(&password[..1]),
        }
        bits >>= 1;
    }
    let mut state = md5::bytes(&first);
    for round in 0..MD5_ROUNDS {
        // Each goes over the whole password.
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        let mut next = Vec::with_capacity(2 * password.len() + 32);
        let odd = round % 2 == 1;
        next.extend_from_slice(if odd { password } else { &state });
        if round % 3 != 0 {
            next.extend_from_slice(salt.as_bytes());
        }
        if round % 7 != 0 {
            next.extend_from_slice(password);
        }
        next.extend_from_slice(if odd { &state } else { password });
        state = md5::bytes(&next);
    }
    let mut made = format!("$1${salt}$");
    let mut put = |bits: u32, digits: usize| {
        for at in 0..digits {
            let value = bits >> (6 * at) & 63;
            made.push(char::from(OLD_DIGITS[value as usize]));
        }
    };
    let three = |a: usize, b: usize, c: usize| {
        u32::from(state[a]) << 16 | u32::from(state[b]) << 8 | u32::from(state[c])
    };
    for (a, b, c) in [(0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)] {
        put(three(a, b, c), 4);
    }
    put(u32::from(state[11]), 2);
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salts_are_read_as_written() {
        let bytes: [u8; 16] = std::array::from_fn(|n| (n * 37) as u8);
        assert_eq!(bcrypt_bytes(bcrypt_digits(&bytes).as_bytes()), Some(bytes));
        assert_eq!(bcrypt_bytes(b"*"), None);
    }

    #[test]
    fn a_known_password() {
        let salt = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.";
        let made = crypt("U*U", salt).expect("the salt is one");
        assert_eq!(made, format!("{salt}E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"));
        for wrong in [
            "",
            "a",
            "$2a$",
            "$2a$99$CCCCCCCCCCCCCCCCCCCCC.",
            "$2a$05$C",
            "$9$",
        ] {
            let refused = crypt("x", wrong).err();
            assert!(refused.is_some_and(|e| e.sqlstate() == "22023"), "{wrong}");
        }
    }
}
