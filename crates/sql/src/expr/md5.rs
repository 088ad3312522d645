//! MD5 (RFC 1321), for `md5()`. For checksums of data, as PostgreSQL has it; not for secrets.

/// How far each step rotates, four to a round.
const ROTATE: [[u32; 4]; 4] = [
    [7, 12, 17, 22],
    [5, 9, 14, 20],
    [4, 11, 16, 23],
    [6, 10, 15, 21],
];

/// The digest in hexadecimal.
pub fn hex(data: &[u8]) -> String {
    let bytes = bytes(data).into_iter();
    bytes.map(|b| format!("{b:02x}")).collect()
}

/// The digest.
pub fn bytes(data: &[u8]) -> [u8; 16] {
    let words = words(data);
    std::array::from_fn(|at| words[at / 4].to_le_bytes()[at % 4])
}

/// The digest as four numbers, of which each is four bytes, the lowest first.
pub fn words(data: &[u8]) -> [u32; 4] {
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let (whole, rest) = data.as_chunks::<64>();
    whole.iter().for_each(|block| step(&mut state, block));
    // A bit, zeros, and the length in bits fill the last block, or the last two.
    let mut tail = [0; 128];
    tail[..rest.len()].copy_from_slice(rest);
    tail[rest.len()] = 0x80;
    let end = if rest.len() < 56 { 64 } else { 128 };
    tail[end - 8..end].copy_from_slice(&(data.len() as u64).wrapping_mul(8).to_le_bytes());
    let (last, _) = tail[..end].as_chunks::<64>();
    last.iter().for_each(|block| step(&mut state, block));
    state
}

fn step(state: &mut [u32; 4], block: &[u8; 64]) {
    let (words, _) = block.as_chunks::<4>();
    let word = |i: usize| u32::from_le_bytes(words[i]);
    let [mut a, mut b, mut c, mut d] = *state;
    for i in 0..64 {
        let (mixed, from) = match i / 16 {
            0 => (b & c | !b & d, i),
            1 => (d & b | !d & c, (5 * i + 1) % 16),
            2 => (b ^ c ^ d, (3 * i + 5) % 16),
            _ => (c ^ (b | !d), 7 * i % 16),
        };
        // The first 32 bits of the sine's fraction.
        let constant = (((i + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
        let sum = a
            .wrapping_add(mixed)
            .wrapping_add(constant)
            .wrapping_add(word(from));
        (a, d, c) = (d, c, b);
        b = b.wrapping_add(sum.rotate_left(ROTATE[i / 16][i % 4]));
    }
    for (sum, part) in state.iter_mut().zip([a, b, c, d]) {
        *sum = sum.wrapping_add(part);
    }
}

#[cfg(test)]
mod tests {
    use super::hex;

    #[test]
    fn the_vectors_of_the_rfc() {
        for (text, digest) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            (
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
                "d174ab98d277d9f5a5611c2c9f419d9f",
            ),
            (&"1234567890".repeat(8), "57edf4a22be3c955ac49da2e2107b67a"),
        ] {
            assert_eq!(hex(text.as_bytes()), digest, "{text}");
        }
    }
}
