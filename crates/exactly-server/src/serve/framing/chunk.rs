//! Where a body in chunks ends, as hyper sees it.

/// Where in a chunked body.
#[derive(Debug)]
pub(super) enum Chunk {
    /// In the line that tells a chunk's size; so much of it was read.
    Size {
        size: u64,
        in_extension: bool,
    },
    /// At the end of that line.
    SizeEnd {
        size: u64,
    },
    /// In the data and the line end after it.
    Data(u64),
    /// At the start of a line of the trailer.
    Trailer,
    InTrailer,
    /// At the end of a line of the trailer; the empty one ends the body.
    TrailerEnd {
        is_empty: bool,
    },
}

/// How far some bytes led.
pub(super) enum Followed {
    /// So many of them belong to the body, which goes on.
    Within(usize),
    /// So many of them belong to the body, which ended.
    Ended(usize),
    /// This is no body in chunks.
    Broken,
}

impl Chunk {
    pub(super) const START: Self = Self::Size {
        size: 0,
        in_extension: false,
    };

    /// Follows some of `bytes`, of which there is at least one. Lines end with both of their characters: a server that took
    /// one for enough would see another end.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> Followed {
        let byte = bytes[0];
        *self = match *self {
            Self::Data(left) => {
                let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let left = left - taken as u64;
                *self = if left == 0 { Self::START } else { Self::Data(left) };
                return Followed::Within(taken);
            }
            Self::Size { size, in_extension } => match (byte, char::from(byte).to_digit(16)) {
                (b'\r', _) => Self::SizeEnd { size },
                (b'\n', _) => return Followed::Broken,
                _ if in_extension => return Followed::Within(1),
                (b';' | b' ' | b'\t', _) => Self::Size {
                    size,
                    in_extension: true,
                },
                (_, Some(digit)) if size <= u64::MAX >> 8 => Self::Size {
                    size: size << 4 | u64::from(digit),
                    in_extension,
                },
                _ => return Followed::Broken,
            },
            Self::SizeEnd { size: 0 } | Self::TrailerEnd { is_empty: false } if byte == b'\n' => Self::Trailer,
            // The line end after the data counts as data.
            Self::SizeEnd { size } if byte == b'\n' => Self::Data(size.saturating_add(2)),
            Self::Trailer if byte == b'\r' => Self::TrailerEnd { is_empty: true },
            Self::InTrailer if byte == b'\r' => Self::TrailerEnd { is_empty: false },
            Self::Trailer | Self::InTrailer => Self::InTrailer,
            Self::TrailerEnd { is_empty: true } if byte == b'\n' => return Followed::Ended(1),
            Self::SizeEnd { .. } | Self::TrailerEnd { .. } => return Followed::Broken,
        };
        Followed::Within(1)
    }
}
