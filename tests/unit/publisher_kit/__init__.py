"""What the publisher's tests share: rows of `ready`, settings, and a mock cluster that fails on command."""
