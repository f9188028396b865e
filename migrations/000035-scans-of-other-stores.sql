-- Events in DynamoDB have no offset of their own: a rebuild that scans them continues at a place, which is a text.
ALTER TABLE consumer_rebuilds ADD COLUMN scanned_place text;
