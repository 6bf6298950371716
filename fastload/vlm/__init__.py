"""Vision-language samples: picture rules, chats, and packed batches."""
