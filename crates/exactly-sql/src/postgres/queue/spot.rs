//! Where the row of a task is.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

/// A page of the table and an item in it, as the server writes them. The row is there until somebody writes it anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot([u8; 6]);

const TID: Oid = Oid(27);
const TID_ARRAY: Oid = Oid(1010);

impl Type<Postgres> for Spot {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TID)
    }

    fn compatible(ty: &PgTypeInfo) -> bool {
        ty.oid() == Some(TID)
    }
}

impl PgHasArrayType for Spot {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TID_ARRAY)
    }
}

impl Decode<'_, Postgres> for Spot {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        Ok(Self(value.as_bytes()?.try_into()?))
    }
}

impl Encode<'_, Postgres> for Spot {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }
}

#[cfg(test)]
impl Spot {
    pub(super) fn nth(item: u16) -> Self {
        let [high, low] = item.to_be_bytes();
        Self([0, 0, 0, 0, high, low])
    }
}
